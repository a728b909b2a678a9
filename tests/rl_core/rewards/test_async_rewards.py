"""`async def` functions in real processes."""

from pathlib import Path

import pytest

from tests.rl_core.rewards.samples import make_sample, pool_of, without_place

FILE = Path(__file__).with_name("asynchronous.py")


@pytest.mark.parametrize("calls", [1, 4])
def test_a_process_has_as_many_calls_under_way_as_allowed_and_no_more(calls):
    naps = ["0.5"] * 2 + ["0.05"] * 32  # the first two keep both processes busy until the others wait in full number
    with pool_of(FILE, "nap", workers=2, async_calls=calls, timeout_seconds=60.0) as pool:
        scores = pool.score_all([make_sample(nap) for nap in naps])
    assert [score.overall for score in scores] == [1.0] * len(naps)
    assert max(score.components["under_way"] for score in scores) == calls


REASONS = {
    "raise": "KeyError: 'the reason'",
    "own timeout": "TimeoutError: the judge's server",
    "hang": "no result within reward.timeout_seconds = 1",
    "block": "no result within reward.timeout_seconds = 1",
}


def test_a_failing_call_costs_its_own_sample():
    responses = ["good", "raise", "good", "own timeout", "hang", "good", "block", *["good"] * 10]
    with pool_of(FILE, "judge", async_calls=8) as pool:
        scores = pool.score_all([make_sample(response) for response in responses])
    assert [without_place(score.error) for score in scores] == [REASONS.get(response) for response in responses]


def test_a_process_keeps_its_event_loop():
    with pool_of(FILE, "same_loop", workers=1) as pool:
        for _ in range(3):
            assert {score.overall for score in pool.score_all([make_sample("x")] * 5)} == {1.0}
