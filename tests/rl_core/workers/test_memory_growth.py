"""A worker on a CPU does not grow, though its micro-batches differ in length from step to step."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest

from rl_core.config.loading import load_config
from rl_core.data.prepared import PreparedDataset
from rl_core.distributed.place import RankPlace
from rl_core.environment import ALLOCATOR
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.small_run import SMALL, load_all, prepare
from tests.rl_core.workers.rank_life import Rank
from tests.rl_core.workers.trials import drawn_group

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS, WARM_UP = 25, 10
LONGEST = 96
MIB = 1 << 20

MODEL = (
    "model.source={type: tiny, hidden_size: 576, num_heads: 9, num_key_value_heads: 3, intermediate_size: 1536, "
    "num_layers: 12, vision_hidden_size: 144}"
)
COMMON = (MODEL, "model.dtype=bfloat16", "actor.micro_batch_size_per_device_for_update=8", "data.train.size=8")


def grown(place: RankPlace, root: Path, overrides: Sequence[str]) -> list[float]:
    """MiB of resident memory after each of so many updates."""
    os.environ.update(ALLOCATOR)
    rank = Rank.open(place, root, overrides)
    worker, generator = rank.worker, np.random.default_rng(place.rank)
    load_all(worker, rank.run.initial_model)
    dataset = PreparedDataset.open(rank.run.data, "train")
    sizes = []
    for _ in range(STEPS):
        rows = range(place.rank, 8, place.size)
        groups = [drawn_group(dataset[row], generator.integers(1, LONGEST + 1, 8), generator) for row in rows]
        everything = [group for own in worker.ranks.gather(groups) for group in own]
        totals = OptimizerBatch.of(everything, longest_response=LONGEST).totals
        batch = OptimizerBatch(groups=groups, totals=totals)
        critic = [batch] if worker.trainer.critic is not None else []
        worker.update(UpdateBatch(policy=[batch], critic=critic, kl_coef=None, check_agreement=False))
        sizes.append(psutil.Process().memory_info().rss / MIB)
    worker.close()
    return sizes


@pytest.mark.parametrize(
    ("size", "overrides"),
    [
        pytest.param(1, (), id="all weights"),
        pytest.param(2, (), id="two workers"),
        pytest.param(1, ("algorithm.advantage.type=gae", "critic={}"), id="with a critic"),
        pytest.param(1, ("model.lora={rank: 16}",), id="LoRA"),
    ],
)
def test_memory_stays_as_it_is_after_the_first_steps(size, overrides, tmp_path):
    every = [*COMMON, f"rollout.max_response_length={LONGEST}", *overrides]
    prepare(load_config(SMALL, every), tmp_path / "run")
    for sizes in run_ranks(grown, tmp_path, tmp_path / "run", every, size=size):
        per_step = np.polyfit(range(WARM_UP, STEPS), sizes[WARM_UP:], 1)[0]
        assert per_step < 5.0, f"{per_step:.1f} MiB a step: {[round(mib) for mib in sizes]}"
