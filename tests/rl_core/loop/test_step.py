"""A step with the real engine and trainer, and what must stop it."""

import pytest
import torch

from rl_core.config.run import RunConfig
from rl_core.loop import sampling, step
from rl_core.loop.sampling import StaleWeights
from rl_core.loop.step import StepRecord, take_step
from rl_core.rewards.pool import RewardPool
from rl_core.training.agreement import AgreementError
from rl_core.types import Prompt, Sampling
from rl_core.workers import local_worker
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import UpdateBatch


def run_step(
    number: int, prompts: list[Prompt], config: RunConfig, worker: LocalWorker, pool: RewardPool
) -> StepRecord:
    return take_step(prompts, step=number, config=config, workers=worker, rewards=pool)


def test_engine_and_trainer_agree_over_several_steps(prompts, config, worker, rewards) -> None:
    for number in (1, 2, 3):
        record = run_step(number, prompts, config, worker, rewards)
        assert record.metrics["agreement/log_prob_gap_max"] < 2e-5
        assert worker.policy_version == number
        assert len(record.groups) == len(prompts)
        assert all(len(group.rollouts) == config.rollout.n for group in record.groups)


def test_a_step_is_equal_to_the_bit_when_repeated(prompts, config, worker, rewards, prepared_run) -> None:
    first = run_step(1, prompts, config, worker, rewards)
    worker.load_policy(prepared_run.initial_model)
    again = run_step(1, prompts, config, worker, rewards)
    assert first.metrics == again.metrics


def test_a_missed_weight_sync_stops_the_run(prompts, config, worker, rewards, monkeypatch) -> None:
    run_step(1, prompts, config, worker, rewards)
    monkeypatch.setattr(worker, "_engine_is_current", True)
    with pytest.raises(StaleWeights, match="policy version"):
        run_step(2, prompts, config, worker, rewards)


def test_a_sync_that_moves_the_version_and_not_the_weights_stops_the_run(
    prompts, config, worker, rewards, train_groups, monkeypatch
) -> None:
    stale = [(name, weight.clone()) for name, weight in local_worker.named_hf_weights(worker._policy.model)]
    worker.update(UpdateBatch(optimizer_batches=[train_groups]))
    monkeypatch.setattr(local_worker, "named_hf_weights", lambda model: iter(stale))
    with pytest.raises(AgreementError, match="differ by up to"):
        run_step(2, prompts, config, worker, rewards)


def test_an_update_that_can_compare_nothing_stops_the_run(worker, train_groups) -> None:
    batch = UpdateBatch(optimizer_batches=[train_groups])
    worker.update(batch)
    with pytest.raises(AgreementError, match="no token of the optimizer batch could be compared"):
        worker.update(batch)


def test_one_perturbed_layer_in_the_engine_stops_the_run(prompts, config, worker, rewards, monkeypatch) -> None:
    original = local_worker.named_hf_weights

    def perturbed(model: torch.nn.Module):
        for name, weight in original(model):
            yield name, weight * 1.01 if name.endswith("layers.1.mlp.down_proj.weight") else weight

    monkeypatch.setattr(local_worker, "named_hf_weights", perturbed)
    with pytest.raises(AgreementError):
        run_step(1, prompts, config, worker, rewards)


def test_another_temperature_in_the_engine_stops_the_run(prompts, config, worker, rewards, monkeypatch) -> None:
    wrong = Sampling(temperature=0.9, max_tokens=config.rollout.max_response_length)
    monkeypatch.setattr(sampling, "training_sampling", lambda config: wrong)
    with pytest.raises(AgreementError):
        run_step(1, prompts, config, worker, rewards)


def test_the_weights_do_not_move_when_the_agreement_fails(prompts, config, worker, rewards, monkeypatch) -> None:
    before = {name: weight.clone() for name, weight in worker._policy.model.state_dict().items()}
    wrong = Sampling(temperature=0.9, max_tokens=config.rollout.max_response_length)
    monkeypatch.setattr(sampling, "training_sampling", lambda config: wrong)
    with pytest.raises(AgreementError):
        run_step(1, prompts, config, worker, rewards)
    after = worker._policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_optimizer_batches_are_whole_groups_in_the_loaders_order(prompts, config, worker, rewards) -> None:
    record = run_step(1, prompts, config, worker, rewards)
    batches = step.optimizer_batches(record.trained, prompts, global_batch_size=3)
    assert [[group.prompt.uid for group in batch] for batch in batches] == [
        [prompt.uid for prompt in prompts[:3]],
        [prompt.uid for prompt in prompts[3:]],
    ]
    without_first = [group for group in record.trained if group.prompt.uid != prompts[0].uid]
    assert len(step.optimizer_batches(without_first, prompts, global_batch_size=1)) == len(prompts) - 1
