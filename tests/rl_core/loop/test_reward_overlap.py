"""Slow rewards beside real generation: they begin with the first responses, several at one time."""

import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.loop.filtering import every_group
from rl_core.loop.scoring import DrawScores
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import requests_for
from rl_core.run_directory import RunDirectory
from rl_core.types import Sampling, Score
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import awake_generator
from tests.rl_core.small_run import SMALL, OpenWorker

SLOW = Path(__file__).with_name("slow_reward.py")
PROMPTS, SAMPLES, WORKERS = 8, 64, 16


@pytest.fixture
def slow() -> RunConfig:
    return load_config(
        SMALL,
        [
            "cold_start=null",
            f"reward={{function: '{SLOW}:score', workers: {WORKERS}}}",
            f"rollout.n={SAMPLES}",
            "rollout.max_num_seqs=32",  # responses end all the time, as they do where lengths differ by thousands
            "rollout.max_response_length=192",  # the last ones begin when hundreds have their reward, or could have it
        ],
    )


@pytest.fixture
def pool(slow: RunConfig) -> Iterator[RewardPool]:
    with RewardPool(slow.reward) as pool:
        yield pool


@pytest.fixture
def slow_worker(
    slow: RunConfig, pool: RewardPool, prepared_run: RunDirectory, open_worker: OpenWorker
) -> Iterator[LocalWorker]:
    model = prepared_run.initial_model
    folders = WorkerFolders(model=model, base=model, data=prepared_run.data, images_per_prompt=1)
    with open_worker(slow, folders) as worker:
        worker.load("policy", prepared_run.initial_model)
        with awake_generator(worker):
            yield worker


@pytest.mark.slow
def test_512_slow_rewards_overlap_with_generation_and_each_other(
    slow: RunConfig, pool: RewardPool, slow_worker: LocalWorker, prepared_run: RunDirectory
) -> None:
    prompts = PreparedDataset.open(prepared_run.data, "train")[:PROMPTS]
    scoring = DrawScores(pool, prompts, SAMPLES, every_group())
    sampling = Sampling(temperature=1.0, max_tokens=slow.rollout.max_response_length)
    scoring.watch(slow_worker.generate(requests_for(prompts, SAMPLES, run_seed=1, step=1), sampling))
    generated = time.monotonic()
    scores = list(scoring.wait().scores.values())
    assert [score.error for score in scores] == [None] * PROMPTS * SAMPLES
    during_generation = [score for score in scores if score.components["ended"] < generated]
    assert len(during_generation) > WORKERS
    assert most_at_one_time(scores) > 1


def most_at_one_time(scores: Sequence[Score]) -> int:
    """The largest number of calls under way together."""
    begins = [(score.components["began"], 1) for score in scores]
    ends = [(score.components["ended"], -1) for score in scores]
    return max(accumulate(change for _, change in sorted(begins + ends)))
