"""How large the images and videos are that vLLM prepares for."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from rl_core.models.loading import load_processor


def largest_sizes(folder: Path, architecture: PreTrainedConfig, *, tokens: int) -> dict[str, dict[str, dict[str, int]]]:
    """vLLM's `mm_processor_kwargs`, with which no image or video has more than about this many tokens.

    At its start vLLM tries the largest image that the processor lets through, and keeps the memory that this takes free
    for ever: 16,384 tokens for the published Qwen2.5-VL, whatever images a run has.

    With a quarter more than the tokens of the longest prompt, every prompt stays as it is. A processor rounds the sides
    of what it scales down to whole tokens and refuses a side that is 200 times the other one, so what it scales has at
    least 6/7 of the tokens that it may have, where these are thousands: then it is too long for a prompt.
    """
    processor: Any = load_processor(folder)
    vision = architecture.vision_config
    area = tokens * (vision.patch_size * vision.spatial_merge_size) ** 2
    frames = vision.temporal_patch_size  # which a token of a video shows
    return {
        "images_kwargs": {"size": _within(processor.image_processor.size, area)},
        "videos_kwargs": {"size": _within(processor.video_processor.size, area * frames)},
    }


def _within(size: Any, area: int) -> dict[str, int]:
    """The least and the most pixels that a processor lets through, the latter at most `area`."""
    least, most = int(size["shortest_edge"]), int(size["longest_edge"])
    return {"shortest_edge": least, "longest_edge": max(least, min(most, area))}
