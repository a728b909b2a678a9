"""Runs in bfloat16, with adapters, with a frozen vision tower: they train, and go on from a checkpoint to the bit."""

from collections.abc import Callable

import pytest
import torch

from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.models.named_weights import named_hf_weights
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import UpdateBatch
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import optimizer_batch, save_state, take_step

SETTINGS = {
    "amp": ({"dtype": "bfloat16"}, {"strategy": "adamw"}),
    "pure bfloat16": ({"dtype": "bfloat16"}, {"strategy": "adamw_bf16"}),
    "frozen vision tower": ({"freeze_vision_tower": True}, {}),
    "recomputed activations": ({"dtype": "bfloat16", "gradient_checkpointing": True}, {}),
    "adapters": ({"dtype": "bfloat16", "lora": LoraConfig(rank=4)}, {"lr": 1e-2}),
}


@pytest.fixture(scope="module", params=SETTINGS)
def setting(request: pytest.FixtureRequest, config: RunConfig) -> RunConfig:
    model, optim = SETTINGS[request.param]
    actor = config.actor.model_copy(update={"optim": config.actor.optim.model_copy(update=optim)})
    rollout = config.rollout.model_copy(update={"max_log_prob_gap": 0.5})
    merge = config.merge.model_copy(update={"probe_tolerance": 0.1})
    updated = config.model.model_copy(update=model)
    return config.model_copy(update={"model": updated, "actor": actor, "rollout": rollout, "merge": merge})


@pytest.fixture(scope="module")
def folders(prepared_run: RunDirectory) -> WorkerFolders:
    initial = prepared_run.initial_model
    return WorkerFolders(model=initial, base=initial, data=prepared_run.data, images_per_prompt=1)


def fresh(setting: RunConfig, folders: WorkerFolders) -> LocalWorker:
    return LocalWorker(Opening(config=setting, folders=folders, total_optimizer_steps=100))


def weights(worker: LocalWorker) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in named_hf_weights(worker.trainer.policy.model)}


def test_a_worker_closes_after_an_update_that_broke_off(setting, folders, train_groups) -> None:
    worker = fresh(setting, folders)
    trained = [weight for weight in worker.trainer.policy.parameters() if weight.requires_grad]
    worker.trainer.optimizer.adamw.step = _breaks_off
    with pytest.raises(RuntimeError, match="out of memory"):
        worker.update(batch_of(train_groups))
    assert any(weight.grad is not None for weight in trained)
    worker.close()


def _breaks_off(*_: object) -> None:
    raise RuntimeError("out of memory")


def batch_of(train_groups) -> UpdateBatch:
    return UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False)


def test_a_fresh_worker_goes_on_from_a_checkpoint_to_the_bit(setting, folders, train_groups, tmp_path) -> None:
    worker = fresh(setting, folders)
    before = weights(worker)
    worker.update(batch_of(train_groups))
    probe = groups_of(train_groups[:1])
    save_state(worker, tmp_path, model_only=False, probe=probe)
    expected_result, expected = worker.update(batch_of(train_groups)), weights(worker)
    other = fresh(setting, folders)
    other.load("saved state", tmp_path)
    assert other.update(batch_of(train_groups)) == expected_result
    found = weights(other)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    moved = {name for name, weight in found.items() if not torch.equal(weight, before[name])}
    assert moved
    is_tower_frozen = setting.model.freeze_vision_tower or setting.model.lora is not None
    assert any(".visual." in name for name in moved) != is_tower_frozen


def test_engine_and_trainer_agree_in_bfloat16(
    config: RunConfig, folders: WorkerFolders, open_worker: Callable[..., object], prompts, rewards, train_groups
) -> None:
    model = config.model.model_copy(update={"dtype": "bfloat16"})
    rollout = config.rollout.model_copy(update={"max_log_prob_gap": 0.5})
    bfloat16 = config.model_copy(update={"model": model, "rollout": rollout})
    with open_worker(bfloat16, folders) as worker:
        for number in (1, 2):
            record = take_step(prompts, step=number, config=bfloat16, workers=worker, rewards=rewards)
            assert record.metrics["agreement/log_prob_gap_max"] < 0.1
            worker.update(batch_of(train_groups))
