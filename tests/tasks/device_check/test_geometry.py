"""The configured model without its weights: a folder with a config.json is enough to measure its sizes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_core.config.loading import dump_config, load_config
from rl_core.config.run import RunConfig
from rl_core.planning.batches import update_token_budget
from rl_core.planning.gpu import CARDS, Gpu
from rl_core.planning.step_time import ARITHMETIC, CardTime
from tasks.device_check import checks, configured_generator, configured_update, geometry
from tasks.device_check.check import Setting
from tasks.device_check.configured_generator import generator_findings
from tasks.device_check.geometry import prepare_geometry
from tasks.device_check.trial import learn_from, made_groups

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "fullatt_block_indexes": [1],
}
FIELDS = {
    "images": {"model_type": "qwen2_5_vl", "tie_word_embeddings": True, "text_config": TEXT, "vision_config": VISION},
    "text": {"model_type": "qwen2", "tie_word_embeddings": True, **TEXT},
}


def config_of(folder: Path, fields: Mapping[str, Any]) -> Path:
    """A config whose model is a folder with nothing but a config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fields))
    config = RunConfig.model_validate(
        {
            "experiment": "geometry",
            "data": {
                "train": {"type": "local", "path": "rows that are not here.jsonl"},
                "validation": {"type": "local", "path": "others.jsonl"},
                "max_prompt_length": 96,
                "rollout_batch_size": 64,
            },
            "model": {"source": {"type": "pretrained", "path": str(folder)}},
            "reward": {"function": "math"},
            "rollout": {"n": 2, "max_response_length": 32},
            "actor": {"global_batch_size": 32},
            "algorithm": {"kl": {"coef": 0.01}},
        }
    )
    file = folder / "run.yaml"
    file.write_text(dump_config(config))
    return file


@pytest.mark.parametrize("kind", FIELDS)
def test_an_update_of_a_model_without_weights_fills_its_passes(kind: str, tmp_path: Path) -> None:
    trial = prepare_geometry(Setting(folder=tmp_path, config=config_of(tmp_path / "model", FIELDS[kind])), response=32)
    groups = made_groups(trial, 32)
    tokens = sum(len(group.prompt.token_ids) + 2 * 32 for group in groups)
    assert 1.5 < tokens / update_token_budget(trial.config) < 3.0
    assert all(48 <= len(group.prompt.token_ids) <= 96 for group in groups)
    assert all(bool(group.prompt.image_uids) == (kind == "images") for group in groups)
    sampled = {int(token) for group in groups for rollout in group.rollouts for token in rollout.response_ids}
    assert not sampled & trial.banned
    assert trial.forecast != replace(trial, response=2).forecast  # it is for responses of this length
    with trial.workers() as workers:
        norm = learn_from(workers, trial, groups)["actor/grad_norm"]
    assert np.isfinite(norm)
    assert norm > 0.0


def test_the_speed_on_a_known_card_is_compared_with_the_plan(tmp_path: Path) -> None:
    """What is computed again takes longer and is no part of the utilisation."""
    file = config_of(tmp_path / "model", FIELDS["images"])
    file.write_text(dump_config(load_config(file, ["model.gradient_checkpointing=true"])))
    trial = prepare_geometry(Setting(folder=tmp_path, config=file), response=32)
    groups = made_groups(trial, 32)
    card = replace(trial, gpu=Gpu(memory_gib=140.4, name=CARDS["h200"].name))
    seconds = {"forward_backward": 0.001, "optimizer": 0.0005}
    figures = configured_update._speed("update", card, groups, seconds).figures
    planned = CardTime(
        config=trial.config, sizes=trial.sizes, card=CARDS["h200"], lengths=geometry.made_lengths(groups)
    )
    assert figures["seconds"] == 0.0015
    assert figures["planned_seconds"] == planned.passes(len(groups)) + planned.optimizer()
    assert figures["mfu"] == pytest.approx(ARITHMETIC * 0.75 * planned.passes(len(groups)) / 0.001)
    generated = configured_generator._speed(groups, 0.5, card)
    assert generated.figures["tokens_per_second"] == len(groups) * 2 * 32 / 0.5
    assert f"0.50 s against {generated.figures['planned_seconds']:.2f} in the plan" in generated.measured


def test_the_generator_of_a_model_without_weights_is_checked(tmp_path: Path) -> None:
    setting = Setting(folder=tmp_path, config=config_of(tmp_path / "model", FIELDS["images"]))
    findings = {finding.check: finding for finding in generator_findings(setting)}
    assert tuple(findings) == checks.GENERATOR
    assert all(findings[check].verdict == "ok" for check in (checks.CACHE, checks.ROUNDS, checks.BANNED, checks.AGREES))
    assert float(findings[checks.BANNED].figures["expected"]) > 5.0  # the ban is what leaves them out
    assert float(findings[checks.SPEED].figures["tokens_per_second"]) > 0.0
