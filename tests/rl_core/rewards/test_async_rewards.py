"""`async def` functions in real processes."""

import time
from pathlib import Path

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from tests.rl_core.rewards.samples import make_sample

FILE = Path(__file__).with_name("asynchronous.py")


def pool_of(function: str, **settings) -> RewardPool:
    settings = {"workers": 2, "timeout_seconds": 1.0, "memory_limit_gib": 1.0} | settings
    return RewardPool(RewardConfig(function=f"{FILE}:{function}", **settings))


def test_a_process_has_several_calls_under_way() -> None:
    with pool_of("nap", workers=2, async_calls=16, timeout_seconds=5.0) as pool:
        pool.score_all([make_sample("0")] * 4)
        began = time.perf_counter()
        scores = pool.score_all([make_sample("0.2")] * 64)
        seconds = time.perf_counter() - began
    assert [score.overall for score in scores] == [1.0] * 64
    assert seconds < 0.25 * 64 * 0.2 / 2, "two processes, one call at a time, would need 6.4 s"


@pytest.mark.parametrize("calls", [1, 4])
def test_no_more_calls_are_under_way_than_allowed(calls: int) -> None:
    with pool_of("nap", workers=1, async_calls=calls) as pool:
        pool.score_all([make_sample("0")])
        began = time.perf_counter()
        pool.score_all([make_sample("0.1")] * 8)
        assert time.perf_counter() - began > 8 * 0.1 / calls


REASONS = {
    "raise": "KeyError: 'the reason'",
    "own timeout": "TimeoutError: the judge's server",
    "hang": "no result within reward.timeout_seconds = 1",
    "block": "no result within reward.timeout_seconds = 1",
}


def test_a_failing_call_costs_its_own_sample() -> None:
    responses = ["good", "raise", "good", "own timeout", "hang", "good", "block", *["good"] * 10]
    with pool_of("judge", async_calls=8) as pool:
        scores = pool.score_all([make_sample(response) for response in responses])
    assert [score.error for score in scores] == [REASONS.get(response) for response in responses]


def test_a_process_keeps_its_event_loop() -> None:
    with pool_of("same_loop", workers=1) as pool:
        for _ in range(3):
            assert {score.overall for score in pool.score_all([make_sample("x")] * 5)} == {1.0}


@pytest.mark.parametrize("function", ["decorated", "wrapped"])
def test_a_function_that_turns_out_to_be_async_works_too(function: str) -> None:
    with pool_of(function) as pool:
        scores = pool.score_all([make_sample(response) for response in ("good", "raise", "good")])
    assert [score.error for score in scores] == [None, REASONS["raise"], None]
