"""A random checkpoint of a known model's form loads as a published one does: its tokens, its ban, its weights."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from rl_core.config.model import ModelConfig
from rl_core.families.registry import PUBLISHED
from rl_core.models import random_checkpoint
from rl_core.models.loading import banned_token_ids, has_vision, load_model, load_processor, stop_token_ids
from rl_core.models.random_checkpoint import write_random_checkpoint
from rl_core.planning.model_sizes import read_sizes

CORPUS = ("How many objects are there?", "<answer>3</answer>")
VOCABULARY = 2048
SMALLER = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
}
SMALLER_VISION = {"depth": 2, "hidden_size": 64, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64}


def smaller(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a known model with small sizes in place of its own."""
    if "vision_config" not in fields:
        return {**fields, **SMALLER}
    vision = {**fields["vision_config"], **SMALLER_VISION}
    if "deepstack_visual_indexes" in vision:
        vision["deepstack_visual_indexes"] = [0]
    if "text_config" not in fields:
        return {**fields, **SMALLER, "vision_config": vision}
    text = {**fields["text_config"], **SMALLER, "head_dim": 24}
    return {**fields, "text_config": text, "vision_config": vision}


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "Qwen/Qwen3-VL-4B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
    ],
)
def test_a_known_model_with_random_weights_loads(name, tmp_path, monkeypatch):
    monkeypatch.setattr(random_checkpoint, "_SHARD_BYTES", 100_000)  # several files
    fields, cpu = smaller(PUBLISHED[name]), torch.device("cpu")
    write_random_checkpoint(fields, tmp_path, corpus=CORPUS, dtype=torch.bfloat16, device=cpu)
    assert len([*tmp_path.glob("*.safetensors")]) > 1

    source = {"type": "pretrained", "path": str(tmp_path)}
    model = load_model(tmp_path, ModelConfig.model_validate({"source": source}))
    sizes = read_sizes(tmp_path / "config.json")
    assert sizes is not None
    assert sum(weight.numel() for weight in model.parameters()) == sizes.parameters
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    assert all(0.015 < float(weight.detach().float().std()) < 0.025 for weight in matrices)

    processor = load_processor(tmp_path)
    tokenizer = processor.tokenizer if has_vision(model.config) else processor
    ids = tokenizer("How many objects are there?")["input_ids"]
    assert tokenizer.decode(ids) == "How many objects are there?"
    named = VOCABULARY - VOCABULARY // 512
    assert len(tokenizer) == named
    banned = banned_token_ids(tmp_path)
    assert {named, VOCABULARY - 1} <= set(banned)
    assert len(banned) < 16
    assert all(token < named for token in stop_token_ids(tmp_path))
