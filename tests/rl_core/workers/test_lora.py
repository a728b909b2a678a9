"""A run with adapters: the engine has the merged weights, checkpoints hold the adapters, the merge the whole model."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.config.algorithm import KLConfig
from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import Tolerance
from rl_core.export.verification import verify_merged
from rl_core.models.named_weights import named_hf_weights
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import UpdateBatch
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import groups_of
from tests.rl_core.models.builders import trained_parameters
from tests.rl_core.steps import optimizer_batch, save_state, take_step


@pytest.fixture(scope="module")
def lora_config(config: RunConfig) -> RunConfig:
    """A rate at which a few steps move the policy far, and the reference KL."""
    actor = config.actor.model_copy(update={"optim": config.actor.optim.model_copy(update={"lr": 2e-2})})
    model = config.model.model_copy(update={"lora": LoraConfig(rank=4, alpha=8)})
    algorithm = config.algorithm.model_copy(update={"kl": KLConfig(coef=0.01)})
    return config.model_copy(update={"model": model, "algorithm": algorithm, "actor": actor})


@pytest.fixture(scope="module")
def folders(prepared_run: RunDirectory) -> WorkerFolders:
    return WorkerFolders(
        model=prepared_run.initial_model, base=prepared_run.initial_model, data=prepared_run.data, images_per_prompt=1
    )


@pytest.fixture(scope="module")
def lora_worker(lora_config: RunConfig, folders: WorkerFolders, open_worker) -> Iterator[LocalWorker]:
    with open_worker(lora_config, folders) as worker:
        yield worker


def adapters(worker: LocalWorker) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trained_parameters(worker.trainer.policy)]


def frozen(worker: LocalWorker) -> list[torch.Tensor]:
    return [
        parameter.detach().clone() for parameter in worker.trainer.policy.parameters() if not parameter.requires_grad
    ]


def largest(values: list[list[np.ndarray]]) -> float:
    return max(float(array.max()) for group in values for array in group)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_engine_and_trainer_agree_while_the_adapters_move_and_the_base_does_not(
    prompts, lora_config, lora_worker, rewards, folders, train_groups
) -> None:
    lora_worker.load("policy", folders.base)
    lora_worker.load("reference", folders.base)
    base = frozen(lora_worker)
    for number in (1, 2, 3):
        record = take_step(prompts, step=number, config=lora_config, kl_coef=0.01, workers=lora_worker, rewards=rewards)
        assert record.metrics["agreement/log_prob_gap_max"] < 2e-5
        lora_worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    assert all(torch.equal(*pair) for pair in zip(base, frozen(lora_worker), strict=True))
    assert all(parameter.any() for parameter in adapters(lora_worker))


@pytest.fixture(scope="module")
def separate_worker(lora_config: RunConfig, folders: WorkerFolders, open_worker) -> Iterator[LocalWorker]:
    """Its generator has the adapters beside the frozen weights."""
    lora = lora_config.model.lora.model_copy(update={"generator_weights": "separate"})
    model = lora_config.model.model_copy(update={"lora": lora})
    with open_worker(lora_config.model_copy(update={"model": model}), folders) as worker:
        yield worker


def test_a_generator_gets_only_the_adapters_while_the_frozen_weights_are_the_same(
    prompts, lora_config, separate_worker, rewards, folders, train_groups, monkeypatch
) -> None:
    sent = []
    load_weights = VllmEngine.load_weights
    monkeypatch.setattr(
        VllmEngine, "load_weights", lambda *args, **kwargs: (sent.append("weights"), load_weights(*args, **kwargs))
    )
    load_adapters = VllmEngine.load_adapters
    monkeypatch.setattr(
        VllmEngine, "load_adapters", lambda *args, **kwargs: (sent.append("adapters"), load_adapters(*args, **kwargs))
    )
    worker = separate_worker
    worker.load("policy", folders.base)
    worker.load("reference", folders.base)
    for number in (1, 2, 3):
        record = take_step(prompts, step=number, config=lora_config, kl_coef=0.01, workers=worker, rewards=rewards)
        assert record.metrics["agreement/log_prob_gap_max"] < 2e-5
        worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    assert sent == ["weights", "adapters", "adapters", "adapters"]
    assert all(parameter.any() for parameter in adapters(worker))
    worker.load("policy", folders.base)
    take_step(prompts, step=4, config=lora_config, kl_coef=0.01, workers=worker, rewards=rewards)
    assert sent[4:] == ["weights", "adapters"]


def test_the_reference_is_the_model_that_rl_started_from(lora_worker, folders, train_groups) -> None:
    groups = groups_of(train_groups)
    lora_worker.load("policy", folders.base)
    lora_worker.load("reference", folders.base)
    assert largest(lora_worker.compute("full_kl", [groups])[0]) == 0.0
    before = lora_worker.compute("old_log_probs", [groups])[0]
    lora_worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    reference = lora_worker.compute("reference_log_probs", [groups])[0]
    policy = lora_worker.compute("old_log_probs", [groups])[0]
    assert all((a == b).all() for pair in zip(before, reference, strict=True) for a, b in zip(*pair, strict=True))
    assert any((a != b).any() for pair in zip(before, policy, strict=True) for a, b in zip(*pair, strict=True))
    assert largest(lora_worker.compute("full_kl", [groups])[0]) > 1e-4


def test_a_fresh_worker_goes_on_from_an_adapter_only_checkpoint_to_the_bit(
    lora_config, lora_worker, folders, train_groups, tmp_path
) -> None:
    batch = UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False)
    lora_worker.load("policy", folders.base)
    lora_worker.update(batch)
    save_state(lora_worker, tmp_path, model_only=False, probe=groups_of(train_groups)[:1])
    expected_result = lora_worker.update(batch)
    expected = adapters(lora_worker)
    whole = sum(
        weight.numel() * weight.element_size() for _, weight in named_hf_weights(lora_worker.trainer.policy.model)
    )
    assert folder_bytes(tmp_path / "model") < 0.2 * whole

    fresh = LocalWorker(Opening(config=lora_config, folders=folders, total_optimizer_steps=100))
    fresh.load("saved state", tmp_path)
    assert fresh.update(batch) == expected_result
    assert all(torch.equal(*pair) for pair in zip(expected, adapters(fresh), strict=True))


def test_the_merged_model_gives_the_checkpoints_probe_in_plain_transformers(
    lora_worker, folders, train_groups, tmp_path, config
) -> None:
    lora_worker.load("policy", folders.base)
    for _ in range(2):
        lora_worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    save_state(lora_worker, tmp_path / "state", model_only=True, probe=groups_of(train_groups)[:2])
    lora_worker.export(tmp_path / "merged")
    bound = Tolerance(largest=2e-5, mean=1e-5)
    verified = verify_merged(tmp_path / "merged", tmp_path / "state" / "probe", bound, engines=["transformers"])
    assert verified.num_tokens > 0


def test_a_cold_start_trains_whole_weights(lora_config, folders, tmp_path, train_groups) -> None:
    """Only the model that RL starts from is adapted; what a cold start teaches is another one."""
    initial = tmp_path / "initial"
    shutil.copytree(folders.model, initial)
    worker = LocalWorker(
        Opening(
            config=lora_config,
            folders=WorkerFolders(model=initial, base=folders.base, data=folders.data, images_per_prompt=1),
            total_optimizer_steps=100,
        )
    )
    worker.load("policy", initial)
    assert all(parameter.requires_grad for parameter in worker.trainer.policy.parameters())
    worker.load("policy", folders.base)
    assert not all(parameter.requires_grad for parameter in worker.trainer.policy.parameters())
