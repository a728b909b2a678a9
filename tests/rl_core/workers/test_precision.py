"""A worker whose model computes in bfloat16. How its state comes back to the bit is in test_ranks.py."""

from unittest.mock import patch

import pytest

from rl_core.config.run import RunConfig
from rl_core.training.batches import UpdateBatch
from rl_core.workers.folders import Opening
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.steps import changed, optimizer_batch, take_step


@pytest.fixture
def bfloat16(config) -> RunConfig:
    return changed(config, {"model.dtype": "bfloat16", "rollout.max_log_prob_gap": 0.5})


@pytest.fixture
def batch(train_groups) -> UpdateBatch:
    return UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False)


def test_a_worker_closes_after_an_update_that_broke_off(bfloat16, folders, batch):
    worker = LocalWorker(Opening(config=bfloat16, folders=folders, total_optimizer_steps=100))
    broken = patch.object(worker.trainer.optimizer.adamw, "step", side_effect=RuntimeError("out of memory"))
    with broken, pytest.raises(RuntimeError, match="out of memory"):
        worker.update(batch)
    assert any(weight.grad is not None for weight in worker.trainer.policy.parameters())
    worker.close()


def test_engine_and_trainer_agree_in_bfloat16(bfloat16, folders, open_worker, prompts, rewards, batch):
    with open_worker(bfloat16, folders) as worker:
        for number in (1, 2):
            record = take_step(prompts, step=number, config=bfloat16, workers=worker, rewards=rewards)
            assert record.metrics["agreement/log_prob_gap_max"] < 0.1
            worker.update(batch)
