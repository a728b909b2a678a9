"""A step with the real engine and trainer, and what must stop it."""

import pytest
import torch

from rl_core.config.run import RunConfig
from rl_core.loop import collecting
from rl_core.loop.collecting import StaleWeights
from rl_core.loop.step_recorder import StepRecord
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import requests_for
from rl_core.training.agreement import AgreementError
from rl_core.training.batches import UpdateBatch
from rl_core.types import Prompt, Sampling
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.steps import optimizer_batch, save_state, take_step


def run_step(
    number: int, prompts: list[Prompt], config: RunConfig, worker: LocalWorker, pool: RewardPool
) -> StepRecord:
    return take_step(prompts, step=number, config=config, workers=worker, rewards=pool)


def test_engine_and_trainer_agree_over_several_steps(prompts, config, worker, rewards) -> None:
    for number in (1, 2, 3):
        record = run_step(number, prompts, config, worker, rewards)
        assert record.metrics["agreement/log_prob_gap_max"] < 2e-5
        assert worker.policy_version == number
        assert len(record.collected.generated.groups) == len(prompts)
        assert all(len(group.rollouts) == config.rollout.n for group in record.collected.generated.groups)


def test_a_step_is_equal_to_the_bit_when_repeated(prompts, config, worker, rewards, prepared_run) -> None:
    first = run_step(1, prompts, config, worker, rewards)
    worker.load("policy", prepared_run.initial_model)
    again = run_step(1, prompts, config, worker, rewards)
    assert first.metrics == again.metrics


def test_a_step_whose_responses_were_all_cut_and_filtered_changes_nothing(prompts, config, worker, rewards) -> None:
    algorithm = config.algorithm.model_copy(update={"overlong_filtering": True})
    rollout = config.rollout.model_copy(update={"max_response_length": 1})
    record = run_step(
        1, prompts, config.model_copy(update={"algorithm": algorithm, "rollout": rollout}), worker, rewards
    )
    assert record.metrics["filter/overlong_share"] == 1.0
    assert worker.policy_version == 0
    assert not any(name.startswith("actor/") for name in record.metrics)


def test_a_missed_weight_sync_stops_the_run(prompts, config, worker, rewards, monkeypatch) -> None:
    run_step(1, prompts, config, worker, rewards)
    monkeypatch.setattr(worker, "_sync_weights", lambda: None)
    with pytest.raises(StaleWeights, match="policy version"):
        run_step(2, prompts, config, worker, rewards)


def test_a_sync_that_moves_the_version_and_not_the_weights_stops_the_run(
    prompts, config, worker, rewards, train_groups, monkeypatch
) -> None:
    stale = [(name, weight.clone()) for name, weight in worker.trainer.named_weights()]
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)]))
    monkeypatch.setattr(worker.trainer, "named_weights", lambda: iter(stale))
    with pytest.raises(AgreementError, match="differ by up to"):
        run_step(2, prompts, config, worker, rewards)


def test_the_weights_do_not_move_when_the_agreement_fails(prompts, config, worker, rewards, monkeypatch) -> None:
    before = {name: weight.clone() for name, weight in worker.trainer.policy.model.state_dict().items()}
    wrong = Sampling(temperature=0.9, max_tokens=config.rollout.max_response_length)
    monkeypatch.setattr(collecting, "training_sampling", lambda config: wrong)
    with pytest.raises(AgreementError):
        run_step(1, prompts, config, worker, rewards)
    after = worker.trainer.policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_trainer_and_generator_never_have_the_device_together(prompts, config, worker, tmp_path) -> None:
    worker.wake()
    try:
        with pytest.raises(RuntimeError, match="while the generator has the device: call sleep first"):
            save_state(worker, tmp_path, model_only=True, probe=[])
        with pytest.raises(RuntimeError, match="while the generator has the device: call sleep first"):
            worker.load("policy", tmp_path)
    finally:
        worker.sleep()
    sampling = Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)
    with pytest.raises(RuntimeError, match="the generator is used while it sleeps: call wake first"):
        worker.generate(requests_for(prompts, 1, run_seed=1, step=1), sampling)
