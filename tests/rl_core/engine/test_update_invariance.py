"""The gradient of an optimizer step does not depend on how the batch is cut, through the real packed forward."""

import random

import pytest
import torch

from rl_core.config.run import RunConfig
from rl_core.training.metrics import TokenMeans
from rl_core.training.policy_update import PolicyUpdate
from rl_core.types import TrainGroup


def gradient(worker, groups: list[TrainGroup], config: RunConfig) -> torch.Tensor:
    worker._policy.zero_grad(set_to_none=True)
    update = PolicyUpdate(worker._policy, optimizer=worker._actor_optimizer(), pixels=worker._pixels, config=config)
    update.accumulate_gradient(groups, means=TokenMeans(), gaps=None)
    return torch.cat([p.grad.flatten() for p in worker._policy.parameters() if p.grad is not None])


def with_settings(config: RunConfig, *, micro: int, mode: str) -> RunConfig:
    actor = config.actor.model_copy(update={"micro_batch_size_per_device_for_update": micro})
    algorithm = config.algorithm.model_copy(update={"loss_avg_mode": mode})
    return config.model_copy(update={"actor": actor, "algorithm": algorithm})


@pytest.mark.parametrize("mode", ["token", "seq"])
@pytest.mark.parametrize("micro", [1, 3])
def test_micro_batches_and_order_do_not_change_the_gradient(mode, micro, worker, train_groups, config) -> None:
    whole = gradient(worker, train_groups, with_settings(config, micro=1000, mode=mode))
    shuffled = random.Random(micro).sample(train_groups, len(train_groups))
    cut = gradient(worker, shuffled, with_settings(config, micro=micro, mode=mode))
    assert (cut - whole).norm() / whole.norm() < 1e-5


def test_the_averages_differ_from_one_another(worker, train_groups, config) -> None:
    """The control: with ragged responses `token` and `seq` are different losses."""
    by_token = gradient(worker, train_groups, with_settings(config, micro=1000, mode="token"))
    by_sequence = gradient(worker, train_groups, with_settings(config, micro=1000, mode="seq"))
    assert (by_token - by_sequence).norm() / by_token.norm() > 1e-3
