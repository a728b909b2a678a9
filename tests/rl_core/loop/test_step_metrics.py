"""The metrics of rewards, and the means of an update, which do not depend on who computed which group."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.reward import _METRIC_ENDINGS, _OWN_METRICS, component_of, mean_metric
from rl_core.loop.experience import advantage_inputs
from rl_core.loop.step_metrics import conversation_metrics, reward_metrics, token_means
from rl_core.rewards.components import LARGEST
from rl_core.training.batches import TokenSums
from rl_core.types import Insertion, RolloutKey, Score, ToolCall
from tests.rl_core.builders import make_group
from tests.rl_core.built_in import ESTIMATORS


def scores_of(*components: dict[str, float] | None) -> dict[RolloutKey, Score]:
    return {
        ("p0", index): Score(components={}, error="no") if named is None else Score(components={"overall": 1.0} | named)
        for index, named in enumerate(components)
    }


def test_conversations_are_counted_by_their_turns_calls_and_ends():
    ids = np.array([1], np.int32)

    def put(*outcomes: str, images: tuple[str, ...] = ()) -> Insertion:
        calls = tuple(ToolCall(name="look", arguments="{}", result="", outcome=outcome) for outcome in outcomes)
        return Insertion(after=1, token_ids=ids, engine_token_ids=ids, turn="", image_uids=images, calls=calls)

    ends = [
        ((put("answered", "invalid"), put("answered", images=("a", "b"))), "turns"),
        ((put("failed"),), "done"),
        ((), "stop"),
        ((), "length"),
    ]
    group = make_group(lengths=(3, 3, 3, 3))
    rollouts = [
        replace(rollout, insertions=insertions, finish_reason=end)
        for rollout, (insertions, end) in zip(group.rollouts, ends, strict=True)
    ]
    assert conversation_metrics([replace(group, rollouts=rollouts)]) == {
        "tools/turns": (3 + 2 + 1 + 1) / 4,
        "tools/calls": 4 / 4,
        "tools/images": 2 / 4,
        "tools/invalid_calls": 1.0,
        "tools/failed_calls": 1.0,
        "tools/out_of_turns": 1 / 4,
        "tools/done": 1 / 4,
    }


def test_a_component_that_only_some_responses_have_is_no_mean_over_those():
    metrics = reward_metrics([], scores_of({"a": 1.0, "bonus": 4.0}, {"a": 0.0}, None, {"a": 0.0, "bonus": 2.0}))
    assert metrics["reward/a"] == pytest.approx(1 / 3)
    assert "reward/bonus" not in metrics
    assert metrics["reward/bonus/mean_where_given"] == 3.0
    assert metrics["reward/bonus/given_share"] == pytest.approx(2 / 3)
    assert metrics["reward/failed"] == 1.0


def test_a_component_with_the_name_of_an_own_metric_is_not_lost():
    named = {"failed": 0.25, "greedy": 0.5, "group_std": 0.75, "zero_std_groups": 2.0}
    metrics = reward_metrics([], scores_of(named, named, None))
    assert {name: metrics[f"reward/{name}/mean"] for name in named} == named
    assert (metrics["reward/failed"], metrics["reward/group_std"], metrics["reward/zero_std_groups"]) == (1.0, 0.0, 0.0)
    assert "reward/greedy" not in metrics, "greedy decoding writes it"


PARTS = st.sampled_from(["a", "b", *_OWN_METRICS, *(ending[1:] for ending in _METRIC_ENDINGS)])
COMPONENTS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@given(st.lists(st.sets(COMPONENTS), min_size=1, max_size=4))
def test_no_two_components_share_a_metric_and_each_mean_is_known_by_its_name(given_names):
    """Whatever a component is called, and whichever of the scores have it."""
    value = {name: float(number) for number, name in enumerate(sorted(set().union(*given_names)))}
    metrics = reward_metrics([], scores_of(*({name: value[name] for name in names} for names in given_names)))
    everywhere = set.intersection(*given_names)
    assert all(metrics[mean_metric(name)] == value[name] for name in everywhere)
    partly = value.keys() - everywhere
    assert all(metrics[f"reward/{name}/mean_where_given"] == value[name] for name in partly)
    own = {"reward/overall", "reward/failed", "reward/group_std", "reward/zero_std_groups"}
    assert len(metrics) == len(own) + len(everywhere) + 2 * len(partly)
    assert {component_of(metric) for metric in metrics} - {None} == everywhere | {"overall"}


HUGE = st.floats(-LARGEST, LARGEST) | st.sampled_from([LARGEST, -LARGEST])


@given(st.lists(HUGE, min_size=2, max_size=8), st.sampled_from(sorted(ESTIMATORS)))
def test_no_sum_of_huge_rewards_overflows(rewards, estimator):
    group = make_group(lengths=tuple(1 for _ in rewards))
    scores = scores_of(*({"overall": reward} for reward in rewards))
    inputs = advantage_inputs(
        [group],
        scores,
        kl_penalties=None,
        greedy_rewards={"p0": -LARGEST},
        values=[[np.zeros(1, np.float32) for _ in rewards]],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = reward_metrics([group], scores)
        advantages = [part.astype(np.float32) for part in ESTIMATORS[estimator]().advantages(inputs)[0]]
    assert np.isfinite([*metrics.values()]).all()
    assert np.isfinite(np.concatenate(advantages)).all()


NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
GROUPS = st.lists(st.tuples(NUMBERS, NUMBERS, st.floats(1e-6, 1.0)), min_size=1, max_size=30)


def part(chosen: list[tuple[float, float, float]]) -> TokenSums:
    return TokenSums(
        sums={"actor/pg_loss": [one for one, _, _ in chosen], "actor/entropy": [two for _, two, _ in chosen]},
        weights=[weight for _, _, weight in chosen],
    )


@given(drawn=GROUPS, data=st.data())
def test_neither_order_nor_cut_changes_a_mean(drawn, data):
    shuffled = data.draw(st.permutations(drawn))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(drawn)), max_size=4)))
    pieces = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(drawn)], strict=True)]
    assert token_means(part(piece) for piece in pieces) == token_means([part(drawn)])


def test_a_mean_is_weighted_as_the_loss_is():
    means = token_means([TokenSums(sums={"a": [0.5, 0.75]}, weights=[0.5, 0.25])])
    assert means == {"a": pytest.approx(1.25 / 0.75)}


def test_a_step_that_diverges_has_a_mean_that_is_no_number():
    means = token_means([TokenSums(sums={"a": [math.inf, -math.inf], "b": [math.inf, 1.0]}, weights=[0.5, 0.5])])
    assert math.isnan(means["a"]) and means["b"] == math.inf
