"""The gradient of an optimizer step does not depend on how the batch is cut, packed or ordered: every loss under every
average, through the real packed forward of a vision-language model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_core.config.algorithm import KLConfig
from rl_core.config.run import RunConfig
from rl_core.training.equal_passes import RankPass
from rl_core.training.objective import PolicyObjective
from rl_core.training.policy_update import PolicyUpdate
from rl_core.types import TrainGroup, TrainSample
from tests.rl_core.built_in import LOSSES
from tests.rl_core.steps import Microbatches, changed, in_lots, optimizer_batch, whole

MODES = ["token", "seq", "seq_sum_norm"]


@pytest.fixture(scope="session")
def off_policy_groups(train_groups) -> list[TrainGroup]:
    """The real rollouts with old and reference log-probs that lie around the policy's, so that ratios are on both sides
    of the bounds, and with importance weights."""
    generator = np.random.default_rng(1)

    def shifted(sample: TrainSample) -> TrainSample:
        def near(scale: float) -> np.ndarray:
            noise = generator.normal(scale=scale, size=len(sample.old_log_probs))
            return (sample.old_log_probs + noise).astype(np.float32)

        weights = generator.uniform(0.5, 2.0, size=len(sample.old_log_probs)).astype(np.float32)
        return replace(sample, old_log_probs=near(0.3), ref_log_probs=near(0.5), importance_weights=weights)

    return [replace(group, samples=[shifted(sample) for sample in group.samples]) for group in train_groups]


def settings_of(config: RunConfig, **algorithm: object) -> RunConfig:
    """The small configuration with KL, entropy bonus and the given options."""
    options = {"kl": KLConfig(coef=0.1), "entropy_coef": 0.01, **algorithm}
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update=options)})


def update_of(worker, config: RunConfig) -> PolicyUpdate:
    kl = config.algorithm.kl
    return PolicyUpdate(
        policy=worker.trainer.policy,
        reference=worker.trainer.reference,
        objective=PolicyObjective(config.algorithm, kl_coef=None if kl is None else kl.coef),
        optimizer=worker.trainer.optimizer,
        pixels=worker.trainer.pixels,
        config=config,
    )


def gradient(worker, groups: Sequence[TrainGroup], microbatches: Microbatches, config: RunConfig) -> torch.Tensor:
    worker.trainer.policy.zero_grad(set_to_none=True)
    update = update_of(worker, config)
    for microbatch in microbatches:
        update.backward(RankPass(groups=microbatch, fillers=()), totals=optimizer_batch(groups).totals)
    return collected(worker)


def collected(worker) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in worker.trainer.policy.parameters() if p.grad is not None])


def groups_backwards(groups: Sequence[TrainGroup]) -> Microbatches:
    """A group a micro-batch, groups and rollouts in reverse."""
    return [[replace(group, samples=group.samples[::-1])] for group in reversed(groups)]


CUTS = {
    "rollouts of 1": in_lots(1),
    "rollouts of 3": in_lots(3),
    "all unpacked": in_lots(1000),
    "trees": groups_backwards,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_cuts_packing_and_order_do_not_change_the_gradient(loss, mode, worker, off_policy_groups, config):
    settings = settings_of(config, loss=loss(), loss_avg_mode=mode)
    expected = gradient(worker, off_policy_groups, whole(off_policy_groups), settings)
    differences = {
        name: float((gradient(worker, off_policy_groups, cut(off_policy_groups), settings) - expected).norm())
        for name, cut in CUTS.items()
    }
    assert {name for name, difference in differences.items() if difference >= 1e-5 * expected.norm()} == set()


def test_cuts_packing_and_order_do_not_change_the_gradient_of_a_full_kl(
    worker, off_policy_groups, config, prepared_run
):
    worker.load("reference", prepared_run.initial_model)
    with torch.no_grad():
        for weight in worker.trainer.reference.model.parameters():
            weight.mul_(1.1)
    settings = settings_of(config, kl=KLConfig(coef=1.0, penalty="full"))
    expected = gradient(worker, off_policy_groups, whole(off_policy_groups), settings)
    without = gradient(worker, off_policy_groups, whole(off_policy_groups), settings_of(config, kl=None))
    assert (without - expected).norm() / expected.norm() > 1e-3
    for cut in CUTS.values():
        found = gradient(worker, off_policy_groups, cut(off_policy_groups), settings)
        assert (found - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("micro", [1, 3])
def test_the_configured_micro_batch_size_does_not_change_the_gradient(micro, worker, off_policy_groups, config):
    settings = settings_of(config)
    expected = gradient(worker, off_policy_groups, whole(off_policy_groups), settings)
    settings = changed(settings, {"actor.micro_batch_size_per_device_for_update": micro})
    worker.trainer.policy.zero_grad(set_to_none=True)
    update = update_of(worker, settings)
    update.accumulate_gradient(optimizer_batch(off_policy_groups))
    assert (collected(worker) - expected).norm() / expected.norm() < 1e-5
