"""EasyR1's reward files, unchanged, in real processes; and what happens when one fails."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from tests.rl_core.rewards.samples import make_sample, supervisors, without_place

FILES = Path(__file__).parent
BATCH = FILES / "easyr1_batch.py"
LIMITS = {
    "workers": 2,
    "timeout_seconds": 1.0,
    "batch_timeout_seconds": 2.0,
    "load_timeout_seconds": 10.0,
    "memory_limit_gib": 1.0,
}


def pool_of(file: Path, function: str = "compute_score", **settings: Any) -> RewardPool:
    events: list[dict[str, Any]] = settings.pop("events", [])
    config = RewardConfig(**LIMITS | {"function": f"{file}:{function}"} | settings)
    return RewardPool(config, log_event=lambda kind, **facts: events.append({"kind": kind} | facts))


def good(count: int = 6) -> list[str]:
    return ["<answer>3</answer>", "<answer>4</answer>", "3"] * (count // 3)


REASONS = {
    "raise": ("KeyError: 'the reason'", "KeyError: 'the reason'"),
    "hang": ("no result within reward.timeout_seconds = 1", "no result within reward.batch_timeout_seconds = 2"),
    "leave": ("the process died in the call: exit code 3", "the process died in the call: exit code 3"),
}


@pytest.mark.parametrize("act", REASONS)
def test_a_sample_that_makes_a_batch_hang_crash_or_raise_costs_itself_alone(act):
    responses = [*good(), act, *good()]
    events = []
    with pool_of(BATCH, events=events) as pool:
        pool.score_all([make_sample("3")])  # a first call may load a model, and has more time
        scores = pool.score_all([make_sample(response, index=i) for i, response in enumerate(responses)])
        assert pool.score_all([make_sample("<answer>3</answer>")])[0].overall == 1.0, "the pool goes on"
    assert [score.error is None for score in scores] == [response != act for response in responses]
    assert (without_place(scores[6].error), scores[6].components) == (REASONS[act][0], {})
    (event,) = events
    assert without_place(event.pop("reason")) == REASONS[act][1]
    assert event == {"kind": "reward_batch_retried", "function": f"{BATCH}:compute_score", "samples": 13}


def test_a_batch_is_one_call_in_one_order_whoever_came_first():
    samples = [make_sample("x", uid=uid, index=i) for uid in ("p0", "p1", "p2") for i in range(4)]
    mixed = random.Random(3).sample(samples, len(samples))
    with pool_of(BATCH, "place") as pool:
        futures = {(sample.prompt_uid, sample.sample_index): pool.submit(sample) for sample in mixed}
        time.sleep(0.3)
        assert not any(future.done() for future in futures.values()), "a batch waits for its end"
        pool.flush()
        places = [futures[sample.prompt_uid, sample.sample_index].result().components for sample in samples]
        assert places == [{"overall": float(i), "size": 12.0} for i in range(12)]
        assert pool.score_all(samples[:2])[1].components == {"overall": 1.0, "size": 2.0}, "the next batch is its own"


def test_an_idle_process_that_dies_leaves_a_batch_whole():
    before = supervisors()
    with pool_of(BATCH, "place", workers=1) as pool:
        pool.score_all([make_sample("x")])
        (supervisor,) = supervisors() - before
        (scoring,) = supervisor.children()
        scoring.kill()
        scores = pool.score_all([make_sample("x", index=i) for i in range(3)])
    assert [score.components for score in scores] == [{"overall": float(i), "size": 3.0} for i in range(3)]
