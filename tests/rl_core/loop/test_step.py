"""A step with the real engine and trainer, and what must stop it."""

import pytest
import torch

from rl_core.loop import collecting
from rl_core.loop.collecting import StaleWeights
from rl_core.rollout.requests import requests_for
from rl_core.training.agreement import AgreementError
from rl_core.training.batches import UpdateBatch
from rl_core.types import Sampling
from tests.rl_core.steps import changed, optimizer_batch, save_state, take_step


def test_engine_and_trainer_agree_over_several_steps(prompts, config, worker, rewards):
    for number in (1, 2, 3):
        record = take_step(prompts, step=number, config=config, workers=worker, rewards=rewards)
        assert record.metrics["agreement/log_prob_gap_max"] < 2e-5
        assert worker.policy_version == number
        assert len(record.collected.generated.groups) == len(prompts)
        assert all(len(group.rollouts) == config.rollout.n for group in record.collected.generated.groups)


def test_a_step_whose_responses_were_all_cut_and_filtered_changes_nothing(prompts, config, worker, rewards):
    config = changed(config, {"algorithm.overlong_filtering": True, "rollout.max_response_length": 1})
    record = take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)
    assert record.metrics["filter/overlong_share"] == 1.0
    assert worker.policy_version == 0
    assert not any(name.startswith("actor/") for name in record.metrics)


def test_a_missed_weight_sync_stops_the_run(prompts, config, worker, rewards, monkeypatch):
    take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)
    monkeypatch.setattr(worker, "_sync_weights", lambda: None)
    with pytest.raises(StaleWeights, match="policy version"):
        take_step(prompts, step=2, config=config, workers=worker, rewards=rewards)


def test_a_sync_that_moves_the_version_and_not_the_weights_stops_the_run(
    prompts, config, worker, rewards, train_groups, monkeypatch
):
    stale = [(name, weight.clone()) for name, weight in worker.trainer.named_weights()]
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)]))
    monkeypatch.setattr(worker.trainer, "named_weights", lambda: iter(stale))
    with pytest.raises(AgreementError, match="differ by up to"):
        take_step(prompts, step=2, config=config, workers=worker, rewards=rewards)


def test_the_weights_do_not_move_when_the_agreement_fails(prompts, config, worker, rewards, monkeypatch):
    before = {name: weight.clone() for name, weight in worker.trainer.policy.model.state_dict().items()}
    wrong = Sampling(temperature=0.9, max_tokens=config.rollout.max_response_length)
    monkeypatch.setattr(collecting, "training_sampling", lambda config: wrong)
    with pytest.raises(AgreementError):
        take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)
    after = worker.trainer.policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_trainer_and_generator_never_have_the_device_together(prompts, config, worker, tmp_path):
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
