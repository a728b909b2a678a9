"""The critic of a real worker: what it learns from, how its gradient is made, and that it comes back to the bit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_core.algorithms.estimators import GAE
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig, OptimConfig
from rl_core.loop.experience import Experience, build_experience
from rl_core.loop.step_metrics import update_metrics
from rl_core.timing import PhaseTimer
from rl_core.training.batches import OptimizerBatch, UpdateBatch, update_batch
from rl_core.training.equal_passes import RankPass
from rl_core.types import Group, Score, TrainGroup, TrainSample
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import changed, collected_of, in_lots, optimizer_batch, save_state, whole


@pytest.fixture
def gae_config(config) -> RunConfig:
    """PPO with a critic whose rate is high enough that a few steps show."""
    return config.model_copy(
        update={
            "algorithm": AlgorithmConfig(advantage=GAE(lam=0.95)),
            "critic": CriticConfig(global_batch_size=2, optim=OptimConfig(lr=3e-3)),
        }
    )


@pytest.fixture
def critic_worker(worker, gae_config, monkeypatch, prepared_run) -> LocalWorker:
    monkeypatch.setattr(worker.trainer, "config", gae_config)
    monkeypatch.setattr(worker.trainer, "critic", None)
    worker.load("critic", prepared_run.initial_model)
    return worker


@pytest.fixture(scope="session")
def groups(train_groups) -> list[Group]:
    return groups_of(train_groups)


@pytest.fixture(scope="session")
def judged_groups(train_groups) -> list[TrainGroup]:
    """The real rollouts with old values and returns that lie on both sides of the bound."""
    generator = np.random.default_rng(1)

    def judged(sample: TrainSample) -> TrainSample:
        def drawn() -> np.ndarray:
            return generator.normal(size=len(sample.old_log_probs)).astype(np.float32)

        return replace(sample, values=drawn(), returns=drawn())

    return [replace(group, samples=[judged(sample) for sample in group.samples]) for group in train_groups]


def build(worker: LocalWorker, groups: list[Group], config: RunConfig) -> Experience:
    """Experience in which every prompt's even samples are right."""
    scores = {
        rollout.key: Score(components={"overall": float(rollout.sample_index % 2 == 0)})
        for group in groups
        for rollout in group.rollouts
    }
    collected = collected_of(groups, scores)
    return build_experience(collected, config=config, kl_coef=None, workers=worker, timer=PhaseTimer())


def samples_of(groups: Sequence[TrainGroup]) -> list[TrainSample]:
    return [sample for group in groups for sample in group.samples]


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


def learn(worker: LocalWorker, groups: Sequence[TrainGroup]) -> dict[str, float]:
    return update_metrics(worker.update(UpdateBatch(policy=[], critic=[optimizer_batch(groups)])))


def test_a_new_critic_leaves_the_returns_as_advantages(critic_worker, groups, gae_config):
    """It expects nothing, so that a token's advantage is the discounted return behind it, made white."""
    experience = build(critic_worker, groups, gae_config)
    samples = samples_of(experience.groups)
    for sample in samples:
        right = float(sample.rollout.sample_index % 2 == 0)
        expected = right * 0.95 ** np.arange(len(sample.returns) - 1, -1, -1)
        np.testing.assert_allclose(sample.returns, expected, atol=1e-6)
        assert not sample.values.any()
    white = np.concatenate([sample.advantages for sample in samples])
    assert white.mean() == pytest.approx(0.0, abs=1e-5) and white.std(ddof=1) == pytest.approx(1.0, abs=1e-3)
    assert experience.metrics["critic/values/max"] == 0.0
    assert experience.metrics["critic/returns/max"] == 1.0
    assert experience.metrics["critic/vf_explained_var"] == pytest.approx(0.0, abs=1e-4)


def test_small_steps_of_the_critic_lead_to_the_returns(critic_worker, groups, gae_config, prepared_run, monkeypatch):
    """Each lowers the loss. A new critic's values are 0, so the first one moves them along the returns. What is
    measured afterwards is the critic's own values."""
    monkeypatch.setattr(critic_worker.trainer, "config", changed(gae_config, {"critic.optim.lr": 1e-5}))
    critic_worker.load("critic", prepared_run.initial_model)
    experience = build(critic_worker, groups, gae_config)
    losses, moved = [], []
    for _ in range(3):
        losses.append(learn(critic_worker, experience.groups)["critic/vf_loss"])
        values = [own for of_group in critic_worker.compute("values", [groups])[0] for own in of_group]
        moved.append(
            sum(float(v @ sample.returns) for v, sample in zip(values, samples_of(experience.groups), strict=True))
        )
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
    assert 0.0 < moved[0] < moved[1] < moved[2]
    after = build(critic_worker, groups, gae_config)
    for sample, own in zip(samples_of(after.groups), values, strict=True):
        np.testing.assert_array_equal(sample.values, own)


def gradient(worker: LocalWorker, groups: Sequence[TrainGroup], cut, *, own_totals: bool = False) -> torch.Tensor:
    critic = worker.trainer.critic
    critic._model.zero_grad(set_to_none=True)
    longest = worker.trainer.config.rollout.max_response_length
    for microbatch in cut(groups):
        totals = OptimizerBatch.of(microbatch if own_totals else groups, longest_response=longest).totals
        critic.backward(RankPass(groups=microbatch, fillers=()), totals=totals)
    return torch.cat([p.grad.flatten() for p in critic._model.parameters() if p.grad is not None])


@pytest.mark.parametrize("mode", ["token", "seq", "seq_sum_norm"])
def test_cuts_packing_and_order_do_not_change_the_gradient(mode, critic_worker, judged_groups, prepared_run):
    critic_worker.trainer.config = changed(critic_worker.trainer.config, {"critic.loss_avg_mode": mode})
    critic_worker.load("critic", prepared_run.initial_model)
    learn(critic_worker, judged_groups)  # a head of zero would hide the body's gradient
    expected = gradient(critic_worker, judged_groups, whole)
    for size in (1, 3, 1000):
        found = gradient(critic_worker, judged_groups, in_lots(size))
        assert (found - expected).norm() < 1e-5 * expected.norm()
    control = gradient(critic_worker, judged_groups, in_lots(3), own_totals=True)
    assert (control - expected).norm() > 1e-2 * expected.norm()


def test_the_policy_rests_before_the_warm_up_ends(critic_worker, judged_groups, prompts, gae_config):
    config = changed(gae_config, {"trainer.critic_warmup": 2})

    def update(step):
        batch = update_batch(judged_groups, prompts, step=step, config=config, kl_coef=None)
        before = weights(critic_worker.trainer.policy), weights(critic_worker.trainer.critic._model)
        result = critic_worker.update(replace(batch, check_agreement=False))
        after = weights(critic_worker.trainer.policy), weights(critic_worker.trainer.critic._model)
        moved_policy, moved_critic = (not torch.equal(*pair) for pair in zip(before, after, strict=True))
        return moved_policy, moved_critic, {name.partition("/")[0] for name in update_metrics(result)}

    assert update(1) == (False, True, {"critic"})
    assert critic_worker.policy_version == 0
    assert update(2) == (True, True, {"critic", "actor"})
    assert critic_worker.policy_version == 1


def test_policy_and_critic_have_batches_and_epochs_of_their_own(judged_groups, prompts, gae_config):
    config = changed(gae_config, {"critic.global_batch_size": 4, "critic.ppo_epochs": 3})
    batch = update_batch(judged_groups, prompts, step=1, config=config, kl_coef=None)
    assert [len(part.groups) for part in batch.policy] == [2, 2]
    assert [len(part.groups) for part in batch.critic] == [4, 4, 4]


def test_an_optimizer_step_without_a_sample_in_the_loss_is_left_out(critic_worker, judged_groups, prompts, gae_config):
    first, *others = judged_groups
    config = changed(gae_config, {"actor.global_batch_size": 1, "critic.global_batch_size": 1})
    cut = replace(first, samples=[replace(sample, in_loss=False) for sample in first.samples])
    batch = update_batch([cut, *others], prompts, step=1, config=config, kl_coef=None)
    assert [part.groups[0].prompt.uid for part in batch.policy] == [group.prompt.uid for group in others]
    assert [part.groups[0].prompt.uid for part in batch.critic] == [group.prompt.uid for group in others]
    nothing = update_batch([cut], prompts, step=1, config=config, kl_coef=None)
    before = weights(critic_worker.trainer.policy)
    assert update_metrics(critic_worker.update(nothing)) == {}
    assert torch.equal(weights(critic_worker.trainer.policy), before)


def test_a_model_only_state_keeps_what_the_critic_has_learned(
    critic_worker, judged_groups, groups, prepared_run, tmp_path
):
    learn(critic_worker, judged_groups)
    save_state(critic_worker, tmp_path, model_only=True, probe=groups[:1])
    expected = weights(critic_worker.trainer.critic._model)
    critic_worker.load("critic", prepared_run.initial_model)
    critic_worker.load("saved weights", tmp_path)
    assert not (tmp_path / "critic" / "optimizer").exists()
    assert torch.equal(weights(critic_worker.trainer.critic._model), expected)
    assert critic_worker.trainer.critic._optimizer.steps == 1
