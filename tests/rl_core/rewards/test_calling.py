"""How a function of each kind is called, here in the test's own process; test_pool.py and its neighbours have the
real ones."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.isolation.calling import BatchFailed, FunctionCaller
from rl_core.rewards.calling import load_scorer
from rl_core.rewards.messages import CallResult
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.sample import RewardSample
from tests.rl_core.rewards.samples import make_sample, order_of, own

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("own_imports")


@pytest.fixture
def judge_of() -> Iterator[Callable[[str], FunctionCaller]]:
    with asyncio.Runner() as runner:

        def judge_of(function: str) -> FunctionCaller:
            order = order_of(resolve_rewards(RewardConfig(function=f"{FOLDER / function}")).specs)
            return FunctionCaller(function=order.load(0), order=order, runner=runner)

        yield judge_of


def results_of(judge: FunctionCaller, samples: Sequence[RewardSample]) -> list[CallResult]:
    """What the server asks for until each sample has its result: a caller may give back a slow chunk's rest."""
    results: list[CallResult] = []
    while len(results) < len(samples):
        results += judge.results(samples[len(results) :], timeout_seconds=2.0, reason="too long")
    return results


def failure(reason: str) -> CallResult:
    return CallResult({}, None, reason)


def test_a_batch_that_raises_fails_whole_and_a_single_sample_by_itself(judge_of):
    judge = judge_of("easyr1_batch.py:compute_score")
    with pytest.raises(BatchFailed, match="KeyError: 'the reason'"):
        results_of(judge, [make_sample("fine"), make_sample("raise")])
    assert results_of(judge, [make_sample("raise")]) == [failure("KeyError: 'the reason' (easyr1_batch.py line 29)")]


def test_the_return_of_a_batch_is_checked_as_a_whole_and_one_by_one(judge_of, tmp_path):
    samples = [make_sample("x")] * 3
    with pytest.raises(BatchFailed, match="returned 2 results for a batch of 3"):
        results_of(judge_of("easyr1_batch.py:short"), samples)
    results = results_of(judge_of("easyr1_batch.py:bad_middle"), samples)
    assert results[1] == failure("ValueError: component `overall` is str, not a number")
    assert [results[0].components, results[2].components] == [{"overall": 3.0}] * 2
    none = own(tmp_path, "REWARD_TYPE = 'batch'\ndef score(inputs): ...\n")
    with pytest.raises(BatchFailed, match="returned NoneType for a batch of 2"):
        results_of(judge_of(none), [make_sample("x")] * 2)


@pytest.mark.parametrize("function", ["decorated", "wrapped"])
def test_an_awaitable_of_a_plain_function_is_awaited(judge_of, function):
    results = results_of(judge_of(f"asynchronous.py:{function}"), [make_sample("good"), make_sample("raise")])
    assert results == [
        CallResult({"overall": 1.0}, None, None),
        failure("KeyError: 'the reason' (asynchronous.py line 24)"),
    ]


def test_a_file_that_fails_halfway_is_not_found_again_half_loaded(tmp_path):
    broken = own(tmp_path, "def score(sample): return 1.0\nraise OSError('no model server')\n")
    (spec,) = resolve_rewards(RewardConfig(function=broken)).specs
    for _ in range(2):
        with pytest.raises(OSError, match="no model server"):
            load_scorer(spec)
