"""Packs groups into one sequence. Each group is a tree: its prompt once, followed by its responses.

A packed sequence of two groups, the first with two responses:

    prompt A | response A0 | response A1 | prompt B | response B0

The last token of a response predicts no target, so it is not an input: a response of R tokens takes R - 1 places, and a
response of a single token takes none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedConfig

from rl_core.models.pixels import PixelCache, VisionPixels
from rl_core.models.positions import mrope_positions, vision_runs
from rl_core.models.row_moves import sent
from rl_core.models.tree_layout import TreeLayout, TreeSpans, ranges
from rl_core.types import Int32Array, Int64Array, Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeInput:
    """A prompt and the responses that branch from it, each [R] int32 with R >= 1."""

    prompt: Prompt
    responses: Sequence[Int32Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedTrees:
    """One micro-batch, ready for the policy's forward pass. K is the number of response tokens. Patches of images and
    videos are in the order of the trees, their grids on the CPU, where their consumers read them."""

    input_ids: torch.Tensor  # [1, T] int64
    position_ids: torch.Tensor  # [3, 1, T] int64 for vision-language models (time, height, width), else [1, T]
    layout: TreeLayout
    pixel_values: torch.Tensor | None  # [N, C] float32
    image_grid_thw: torch.Tensor | None  # [images, 3] int64
    pixel_values_videos: torch.Tensor | None  # [N, C] float32
    video_grid_thw: torch.Tensor | None  # [videos, 3] int64
    targets: torch.Tensor  # [K] int64 response tokens, groups -> samples -> tokens
    logit_index: torch.Tensor  # [K] int64 index in T of the token whose logits predict each target

    def vision_inputs(self) -> dict[str, torch.Tensor]:
        """The keyword arguments of a model's forward pass for the pixels."""
        names = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def pack_trees(
    trees: Sequence[TreeInput], *, pixels: PixelCache, model_config: PreTrainedConfig, device: torch.device
) -> PackedTrees:
    """Raises ValueError if the vision tokens of a prompt do not match its images and videos."""
    images = [pixels.get(tree.prompt.image_uids) for tree in trees]
    videos = [pixels.get_videos(tree.prompt.videos) for tree in trees]
    spans = TreeSpans(
        [len(tree.prompt.token_ids) for tree in trees],
        [[len(response) - 1 for response in tree.responses] for tree in trees],
    )

    image_patches = _values(images, device)
    return PackedTrees(
        input_ids=sent(_input_ids(trees), device)[None],
        position_ids=sent(_position_ids(trees, spans, images, videos, model_config), device),
        layout=TreeLayout(spans, device=device),
        pixel_values=None if image_patches is None else pixels.normalised(image_patches),
        image_grid_thw=_grids(images),
        pixel_values_videos=_values(videos, device),
        video_grid_thw=_grids(videos),
        targets=sent(np.concatenate([r for tree in trees for r in tree.responses], dtype=np.int64), device),
        logit_index=sent(_logit_index(spans), device),
    )


def _values(pixels: Sequence[Sequence[VisionPixels]], device: torch.device) -> torch.Tensor | None:
    values = [item.values for own in pixels for item in own]
    if not values:
        return None
    together = torch.cat(values)
    if device.type == "cuda":
        together = together.pin_memory()  # without it the copy would not be asynchronous
    return together.to(device, non_blocking=True)


def _grids(pixels: Sequence[Sequence[VisionPixels]]) -> torch.Tensor | None:
    grids = [item.grid_thw for own in pixels for item in own]
    return torch.tensor(grids, dtype=torch.int64) if grids else None


def _input_ids(trees: Sequence[TreeInput]) -> Int64Array:
    pieces: list[Int32Array] = []
    for tree in trees:
        pieces += [tree.prompt.token_ids, *(response[:-1] for response in tree.responses)]
    return np.concatenate(pieces, dtype=np.int64)


def _position_ids(
    trees: Sequence[TreeInput],
    spans: TreeSpans,
    images: Sequence[Sequence[VisionPixels]],
    videos: Sequence[Sequence[VisionPixels]],
    model_config: PreTrainedConfig,
) -> Int64Array:
    """A response continues after the largest position of its prompt."""
    prompts = [
        prompt_positions(tree.prompt, shown, played, model_config)
        for tree, shown, played in zip(trees, images, videos, strict=True)
    ]
    next_positions = np.array([positions.max() + 1 for positions in prompts], np.int64)
    positions = np.empty((len(prompts[0]), spans.num_tokens), np.int64)
    positions[:, ranges(spans.prompt_starts, spans.prompt_lengths)] = np.concatenate(prompts, axis=1)
    positions[:, ranges(spans.response_starts, spans.response_lengths)] = ranges(
        next_positions[spans.response_prompt], spans.response_lengths
    )
    return positions[:, None] if len(positions) == 3 else positions


def prompt_positions(
    prompt: Prompt, images: Sequence[VisionPixels], videos: Sequence[VisionPixels], model_config: PreTrainedConfig
) -> Int64Array:
    """[3, P] for a vision-language model, [1, P] for a text model. Raises ValueError as `pack_trees`."""
    vision_config = getattr(model_config, "vision_config", None)
    if vision_config is None:
        return np.arange(len(prompt.token_ids), dtype=np.int64)[None]
    try:
        return mrope_positions(
            prompt.token_ids,
            vision_runs(images, videos, model_config),
            merge_size=vision_config.spatial_merge_size,
        )
    except ValueError as error:
        raise ValueError(
            f"prompt {prompt.uid!r}: {error}. Prepare the data with this model's processor and pixel limits"
        ) from error


def _logit_index(spans: TreeSpans) -> Int64Array:
    """The last token of the prompt predicts the first token of a response; each later token is predicted by the token
    before it."""
    lengths = spans.response_lengths + 1
    index = ranges(spans.response_starts - 1, lengths)
    index[np.cumsum(lengths) - lengths] = spans.prompt_ends[spans.response_prompt] - 1
    return index
