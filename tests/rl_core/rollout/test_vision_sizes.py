"""The images and videos that vLLM tries at its start on a GPU have as many tokens as a forward pass of the run can."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.encoder_budget import MultiModalBudget

from tests.rl_core.rollout.test_vllm_arguments import small_arguments

PUBLISHED = {"shortest_edge": 3136, "longest_edge": 12_845_056}
PUBLISHED_VIDEO = {"shortest_edge": 4096, "longest_edge": 25_165_824}


@pytest.fixture(params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def folder(request, tiny_folders, tmp_path) -> Path:
    """A tiny model whose processor lets through as much as those of the published ones."""
    copy = tmp_path / request.param
    shutil.copytree(tiny_folders[request.param], copy)
    file = copy / "processor_config.json"
    processor: dict[str, Any] = json.loads(file.read_text())
    processor["image_processor"]["size"] = PUBLISHED
    if request.param == "qwen3_vl":
        processor["video_processor"]["size"] = PUBLISHED_VIDEO
    file.write_text(json.dumps(processor))
    return copy


@pytest.mark.parametrize("videos", [0, 1])
@pytest.mark.parametrize("prompt", [60, 3000, 9000])
def test_vllm_tries_what_a_forward_pass_can_have(folder, prompt, videos):
    arguments = small_arguments(folder, dtype="bfloat16", max_prompt_length=prompt, videos_per_prompt=videos)
    budget = MultiModalBudget(arguments.create_engine_config(), MULTIMODAL_REGISTRY)
    tried = budget.get_dummy_encoder_profile_inputs()
    tokens = sum(_patches(item) for _, item in tried) // 4
    possible = max(prompt + 40, 8192)
    assert 0.95 * possible <= tokens <= 1.25 * possible
    assert possible <= budget.encoder_compute_budget <= 1.25 * possible, "what exceeds it is never scheduled"


def _patches(item: Any) -> int:
    values = item["pixel_values"] if "pixel_values" in item else item["pixel_values_videos"]
    return len(values.data)


@pytest.mark.parametrize("longest_prompt", [6553, 9000, 16_384])
def test_an_image_that_a_larger_limit_would_rescale_is_too_long_for_a_prompt(longest_prompt):
    """So the limit changes no prompt: it is at or above the processor's own, or no image that it concerns is used."""
    unit, side = 28, 28 * 300
    for limit in np.geomspace(5 * longest_prompt // 4, 80_000, 9).astype(int) * unit**2:
        for shape in np.geomspace(1 / 199, 199, 81):
            sides = {"height": round(side * shape**0.5), "width": round(side / shape**0.5)}
            scaled = smart_resize(**sides, factor=unit, min_pixels=3136, max_pixels=int(limit))
            assert np.prod(scaled) > longest_prompt * unit**2, sides
