"""A run with adapters: the engine has the merged weights, checkpoints hold the adapters, the merge the whole model."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rl_core.config.algorithm import KLConfig
from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import Tolerance
from rl_core.export.verification import verify_merged
from rl_core.models.named_weights import named_hf_weights
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.training.batches import UpdateBatch
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import groups_of
from tests.rl_core.models.builders import trained_parameters
from tests.rl_core.steps import changed, optimizer_batch, save_state, take_step


@pytest.fixture(scope="module")
def lora_config(config) -> RunConfig:
    """A rate at which a few steps move the policy far, and the reference KL."""
    lora, kl = LoraConfig(rank=4, alpha=8), KLConfig(coef=0.01)
    return changed(config, {"actor.optim.lr": 2e-2, "model.lora": lora, "algorithm.kl": kl})


@pytest.fixture(scope="module")
def lora_worker(lora_config, folders, open_worker) -> Iterator[LocalWorker]:
    with open_worker(lora_config, folders) as worker:
        yield worker


def adapters(worker: LocalWorker) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trained_parameters(worker.trainer.policy)]


def frozen(worker: LocalWorker) -> list[torch.Tensor]:
    return [
        parameter.detach().clone() for parameter in worker.trainer.policy.parameters() if not parameter.requires_grad
    ]


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_engine_and_trainer_agree_while_the_adapters_move_and_the_base_does_not(
    prompts, lora_config, lora_worker, rewards, folders, train_groups
):
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
def separate_worker(lora_config, folders, open_worker) -> Iterator[LocalWorker]:
    """Its generator has the adapters besides the frozen weights."""
    with open_worker(changed(lora_config, {"model.lora.generator_weights": "separate"}), folders) as worker:
        yield worker


def test_a_generator_gets_only_the_adapters_while_the_frozen_weights_are_the_same(
    prompts, lora_config, separate_worker, rewards, folders, train_groups, monkeypatch
):
    sent = []
    for what in ("weights", "adapters"):
        load = getattr(VllmEngine, f"load_{what}")
        monkeypatch.setattr(
            VllmEngine,
            f"load_{what}",
            lambda *given, what=what, load=load, **named: (sent.append(what), load(*given, **named)),
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


def test_a_checkpoint_has_the_adapters_alone_and_the_merged_model_gives_its_probe_in_plain_transformers(
    lora_worker, folders, train_groups, tmp_path, config
):
    lora_worker.load("policy", folders.base)
    for _ in range(2):
        lora_worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    save_state(lora_worker, tmp_path / "state", model_only=True, probe=groups_of(train_groups)[:2])
    whole = named_hf_weights(lora_worker.trainer.policy.model)
    assert folder_bytes(tmp_path / "state" / "model") < 0.2 * sum(weight.nbytes for _, weight in whole)
    lora_worker.export(tmp_path / "merged")
    bound = Tolerance(largest=2e-5, mean=1e-5)
    verified = verify_merged(tmp_path / "merged", tmp_path / "state" / "probe", bound, engines=["transformers"])
    assert verified.num_tokens > 0


def test_a_cold_start_trains_whole_weights(lora_config, folders, tmp_path, train_groups):
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
