"""Weighted sums, and other rewards for other sources."""

import math
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.reward import RewardConfig
from rl_core.rewards.messages import CallResult
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.routing import PendingScore, Route, Term, combine
from tests.rl_core.rewards.samples import make_sample

FOLDER = Path(__file__).parent


def route_of(*weights: float, is_mixture: bool = True, reader: int | None = None) -> Route:
    terms = [Term(function_index=place, name=f"t{place}", weight=weight) for place, weight in enumerate(weights)]
    return Route(terms=terms, is_mixture=is_mixture, reader=reader)


def result(overall: float, **components: float) -> CallResult:
    return CallResult({"overall": overall, **components}, None, None)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=5))
def test_the_overall_of_a_mixture_is_its_weighted_sum(pairs):
    score = combine(route_of(*(weight for weight, _ in pairs)), [result(value) for _, value in pairs])
    assert score.overall == pytest.approx(math.fsum(weight * value for weight, value in pairs))
    assert {f"t{place}/overall": value for place, (_, value) in enumerate(pairs)}.items() <= score.components.items()


def test_the_first_terms_components_keep_their_names():
    score = combine(route_of(1.0, 0.5), [result(1.0, accuracy=1.0), result(-1.0, accuracy=0.25)])
    assert score.components == {
        "overall": 0.5,
        "accuracy": 1.0,
        "t0/overall": 1.0,
        "t1/overall": -1.0,
        "t1/accuracy": 0.25,
    }


NAMES = st.sampled_from(["accuracy", "t0", "t1"])


@given(st.lists(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join)), min_size=1, max_size=3))
def test_no_component_of_a_mixture_replaces_another_one(names):
    results = [result(place, **dict.fromkeys(of_term, place + 0.5)) for place, of_term in enumerate(names)]
    score = combine(route_of(*[1.0] * len(names)), results)
    assert len(score.components) == 1 + sum(len(found.components) for found in results)


def test_the_failure_of_a_term_is_that_of_the_sample_and_is_named():
    score = combine(route_of(1.0, 1.0, 1.0), [result(1.0), CallResult({}, None, "no"), CallResult({}, None, "never")])
    assert (score.components, score.error) == ({}, "t1: no; t2: never")


def test_a_sum_without_bounds_is_no_score():
    assert (
        combine(route_of(10.0), [result(1e30)]).error
        == "the weighted sum is 1e+31, larger than 1e+30 in absolute value"
    )


@pytest.mark.parametrize("weights", [(1.0, 1.0), (10.0, -10.0)])
def test_terms_too_large_to_be_added_are_no_score_and_no_wait(weights):
    futures = [Future(), Future()]
    pending = PendingScore(route_of(*weights), futures)
    for future in futures:
        future.set_result(result(1e308))
    assert pending.score.result(timeout=1).error == "the weighted sum is nan, not a finite number"


def test_the_answer_is_that_of_the_term_that_reads_one():
    results = [result(1.0), CallResult({"overall": 1.0}, "7", None)]
    assert combine(route_of(1.0, 1.0, reader=1), results).parsed == "7"


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_score_waits_for_its_last_outcome_in_whichever_order(order):
    futures = [Future() for _ in range(3)]
    pending = PendingScore(route_of(1.0, 2.0, 3.0), futures)
    threads = [threading.Thread(target=futures[place].set_result, args=(result(1.0),)) for place in order]
    for thread in threads:
        assert not pending.score.done()
        thread.start()
        thread.join()
    assert pending.score.result().overall == 6.0


def test_a_lost_outcome_is_the_scores_error_and_a_cancelled_one_cancels_it():
    lost = Future()
    pending = PendingScore(route_of(1.0), [lost])
    lost.set_exception(RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        pending.score.result()
    dropped = Future()
    pending = PendingScore(route_of(1.0), [dropped])
    dropped.cancel()
    dropped.set_running_or_notify_cancel()
    assert pending.score.cancelled()


MIXTURE = (
    {"function": "count"},
    {"function": "length", "weight": 0.5, "kwargs": {"target_length": 10, "max_length": 20}},
    {"function": f"{FOLDER}/easyr1_batch.py:place", "weight": -0.25, "name": "place"},
    {"function": f"{FOLDER}/asynchronous.py:judge", "weight": 2.0},
)


def test_functions_of_every_kind_mix():
    with RewardPool(RewardConfig(mixture=MIXTURE)) as pool:
        samples = [make_sample("<answer>3</answer>", length=15, index=i) for i in range(3)]
        scores = pool.score_all(samples)
        assert pool.has_parser("test")
    assert [score.overall for score in scores] == pytest.approx([1.0 + 0.25 + 2.0 - 0.25 * i for i in range(3)])
    assert scores[1].parsed == "3"
    assert set(scores[1].components) == {
        "overall",
        *("accuracy", "format", "count/overall"),
        *("length/overall", "place/overall", "place/size", "judge/overall"),
    }
