"""The certificate of every family, and what it says where something is broken."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from rl_core.families.registry import FAMILIES
from rl_core.models.packing import pack_trees
from rl_core.rollout import weight_loading
from tasks.device_check.check import Finding, Setting
from tasks.model_check import trainer
from tasks.model_check.checks import AGREES, ARRIVES, GRADIENTS, TREES
from tasks.model_check.generator import generator_findings
from tasks.model_check.shrunk import opening_findings
from tasks.model_check.trainer import trainer_findings
from tests.rl_core.rollout.engines import build_folder

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 1}


def opened(source: Path, folder: Path) -> Setting:
    setting = Setting(folder=folder, model=folder / "model")
    (found,) = opening_findings(setting, str(source))
    assert found.verdict == "ok"
    return setting


def essential(setting: Setting) -> Iterator[Finding]:
    yield from trainer_findings(setting)
    yield from generator_findings(setting)


def other_type(folder: Path, model_type: str, **fields: object) -> Path:
    """The folder of a Llama as another text model of transformers, without a family here."""
    kept = json.loads((build_folder(folder, "llama") / "config.json").read_text())
    kept = {name: value for name, value in kept.items() if name not in {"model_type", "architectures", "dtype"}}
    AutoConfig.for_model(model_type, **(kept | fields)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_trainer_and_generator_of_every_family_are_transformers_model(family: str, tmp_path: Path) -> None:
    found = list(essential(opened(build_folder(tmp_path / "whole", family), tmp_path)))
    assert {finding.verdict for finding in found} == {"ok"}, found
    assert len(found) == 8


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("starcoder2", {"sliding_window": 6}),
        ("qwen3_moe", {"norm_topk_prob": True, **EXPERTS}),
    ],
)
def test_a_text_model_without_a_family_has_a_certificate_too(model_type: str, fields: dict, tmp_path: Path) -> None:
    found = list(essential(opened(other_type(tmp_path / "whole", model_type, **fields), tmp_path)))
    assert {finding.verdict for finding in found} == {"ok"}, found


def test_experts_that_keep_the_weights_of_before_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = opened(other_type(tmp_path / "whole", "qwen3_moe", **EXPERTS), tmp_path)
    monkeypatch.setattr(weight_loading, "_prepare_kernels", lambda model: None)
    found = {finding.check: finding for finding in generator_findings(setting)}
    assert found[AGREES].verdict == "fails"
    assert "keeps a weight of before" in found[AGREES].advice


def test_a_weight_that_vllm_drops_is_named_and_ends_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's loaders skip tables of rotations without a word, as they do biases that a config does not announce."""
    setting = opened(build_folder(tmp_path / "whole", "llama"), tmp_path)
    dropped = "model.layers.0.self_attn.rotary_emb.inv_freq"
    begin = weight_loading.StrictWeights.__init__

    def more(self, weights, *, expected):
        begin(self, [*weights, (dropped, torch.ones(4))], expected=expected | {dropped})

    monkeypatch.setattr(weight_loading.StrictWeights, "__init__", more)
    (finding,) = generator_findings(setting)
    assert (finding.check, finding.verdict) == (ARRIVES, "fails")
    assert dropped in finding.measured and "attention_bias" in finding.measured


def test_positions_of_another_kind_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stretched(*trees, **how):
        packed = pack_trees(*trees, **how)
        return replace(packed, position_ids=2 * packed.position_ids)

    setting = opened(build_folder(tmp_path / "whole", "llama"), tmp_path)
    monkeypatch.setattr(trainer, "pack_trees", stretched)
    found = {finding.check: finding for finding in trainer_findings(setting)}
    assert (found[TREES].verdict, found[GRADIENTS].verdict) == ("fails", "fails")
    assert "response token" in found[TREES].measured
