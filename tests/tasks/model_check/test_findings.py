"""The certificate of every family, and what it says where something is broken."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from rl_core.families.registry import FAMILIES
from rl_core.models.packing import pack_trees
from rl_core.rollout import weight_loading
from rl_core.rollout.cpu import image_blocks
from tasks.device_check.check import Finding, Setting
from tasks.device_check.checks import LORA_SEPARATE
from tasks.device_check.variants import lora_findings
from tasks.model_check import trainer
from tasks.model_check.checks import AGREES, ARRIVES, CHOOSES, EPSILONS, GRADIENTS, TREES
from tasks.model_check.generator import generator_findings
from tasks.model_check.shrunk import opening_findings
from tasks.model_check.trainer import trainer_findings
from tests.rl_core.rollout.engines import build_folder, build_other


def opened(source: Path, folder: Path) -> Setting:
    setting = Setting(folder=folder, model=folder / "model")
    (found,) = opening_findings(setting, str(source))
    assert found.verdict == "ok"
    return setting


def essential(setting: Setting) -> Iterator[Finding]:
    yield from trainer_findings(setting)
    yield from generator_findings(setting)


@pytest.mark.parametrize("family", FAMILIES)
def test_trainer_and_generator_of_every_family_are_transformers_model(family: str, tmp_path: Path) -> None:
    found = list(essential(opened(build_folder(tmp_path / "whole", family), tmp_path)))
    assert {finding.verdict for finding in found} == {"ok"}, found
    chooses_in_bfloat16 = "num_experts" in FAMILIES[family].tiny_text(32) and dtype_of(family) != "float32"
    assert len(found) == 10 + chooses_in_bfloat16


def dtype_of(family: str) -> str:
    return FAMILIES[family].engine.cpu_dtypes[0]


def test_layers_with_experts_and_keys_and_values_of_others_are_transformers_model(tmp_path: Path) -> None:
    """As the larger and the smaller models of Gemma 4 have them."""
    folder = build_folder(tmp_path / "whole", "gemma4_text", num_layers=4)
    fields = json.loads((folder / "config.json").read_text())
    assert fields["num_kv_shared_layers"] == 2
    fields |= {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64}
    (folder / "config.json").write_text(json.dumps(fields))
    found = list(essential(opened(folder, tmp_path)))
    assert {finding.verdict for finding in found} == {"ok"}, found


def test_a_text_model_without_a_family_has_a_certificate_too(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    folder = build_other(tmp_path / "whole", "starcoder2", sliding_window=6, rope_parameters=rope)
    found = list(essential(opened(folder, tmp_path)))
    assert {finding.verdict for finding in found} == {"ok"}, found


@pytest.mark.parametrize("family", ["qwen3_moe", pytest.param("qwen3_5_moe", marks=pytest.mark.slow)])
def test_experts_that_keep_the_weights_of_before_are_reported(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = opened(build_folder(tmp_path / "whole", family), tmp_path)
    monkeypatch.setattr(weight_loading, "_prepare_kernels", lambda model: None)
    found = {finding.check: finding for finding in generator_findings(setting)}
    assert found[AGREES].verdict == "fails"
    assert "keeps a weight of before" in found[AGREES].advice


@pytest.mark.slow
def test_another_choice_in_bfloat16_is_reported(tmp_path: Path) -> None:
    """vLLM reads a field of Qwen3-MoE in Qwen3.5 too, and would not let the weights of the chosen add up to 1."""
    folder = build_folder(tmp_path / "whole", "qwen3_5_moe")
    fields = json.loads((folder / "config.json").read_text())
    fields["text_config"]["norm_topk_prob"] = False
    (folder / "config.json").write_text(json.dumps(fields))
    found = {finding.check: finding for finding in generator_findings(opened(folder, tmp_path))}
    assert (found[AGREES].verdict, found[CHOOSES].verdict) == ("ok", "measured")
    assert "max_mean_log_prob_gap" in found[CHOOSES].advice


def test_a_feature_that_a_plan_refuses_is_not_checked_and_says_why(tmp_path: Path) -> None:
    setting = Setting(folder=tmp_path, model=build_folder(tmp_path / "whole", "qwen3_moe"))
    (finding,) = lora_findings(setting, "separate")
    assert (finding.check, finding.verdict) == (LORA_SEPARATE.holds[0], "not checked")
    assert "experts by Triton, which has no kernels for a CPU; set it to merged" in finding.measured


def test_one_way_attention_over_images_that_see_both_ways_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM has it on a CPU by itself."""
    setting = opened(build_folder(tmp_path / "whole", "gemma3"), tmp_path)
    monkeypatch.setattr(image_blocks, "image_parts", lambda common: [])
    found = {finding.check: finding for finding in generator_findings(setting)}
    assert found[AGREES].verdict == "fails"
    assert "prompts without images agree" in found[AGREES].advice and "attention is one way and" in found[AGREES].advice


def test_biases_that_the_config_does_not_announce_are_named_and_end_the_checks(tmp_path: Path) -> None:
    """transformers gives GLM-4.1V its biases in any case, vLLM only by this field."""
    folder = build_folder(tmp_path / "whole", "glm4v")
    fields = json.loads((folder / "config.json").read_text())
    assert fields["text_config"].pop("attention_bias") is True
    (folder / "config.json").write_text(json.dumps(fields))
    (finding,) = generator_findings(opened(folder, tmp_path))
    assert (finding.check, finding.verdict) == (ARRIVES, "fails")
    for part in ("self_attn.k_proj.bias", "6 of the model's", "attention_bias"):
        assert part in finding.measured


def test_a_norm_with_another_epsilon_in_vllm_is_named(tmp_path: Path) -> None:
    """vLLM has that of the published models in the norm of Mistral 3's projector, whatever the config says."""
    folder = build_folder(tmp_path / "whole", "mistral3")
    fields = json.loads((folder / "config.json").read_text())
    fields["text_config"]["rms_norm_eps"] = 1e-6
    (folder / "config.json").write_text(json.dumps(fields))
    _, finding = islice(generator_findings(opened(folder, tmp_path)), 2)
    assert (finding.check, finding.verdict) == (EPSILONS, "fails")
    assert finding.measured == "model.multi_modal_projector.norm has 1e-06, and 1e-05 in vLLM"


def test_positions_of_another_kind_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stretched(*trees, **how):
        packed = pack_trees(*trees, **how)
        return replace(packed, position_ids=2 * packed.position_ids)

    setting = opened(build_folder(tmp_path / "whole", "llama"), tmp_path)
    monkeypatch.setattr(trainer, "pack_trees", stretched)
    found = {finding.check: finding for finding in trainer_findings(setting)}
    assert (found[TREES].verdict, found[GRADIENTS].verdict) == ("fails", "fails")
    assert "response token" in found[TREES].measured
