"""Packs groups into one sequence. Each group is a tree: its prompt once, followed by its responses.

A packed sequence of two groups, the first with two responses:

    prompt A | response A0 | response A1 | prompt B | response B0

The last token of a response predicts no target, so it is not an input: a response of R tokens takes R - 1 places, and a
response of a single token takes none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from transformers import PreTrainedConfig

from rl_core.families.registry import vision_of
from rl_core.families.vision import MediaInputs
from rl_core.models.pixels import PixelCache
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
    """One micro-batch, ready for the policy's forward pass. K is the number of response tokens."""

    input_ids: torch.Tensor  # [1, T] int64
    position_ids: torch.Tensor  # [3, 1, T] int64 for vision-language models (time, height, width), else [1, T]
    layout: TreeLayout
    vision: Mapping[
        str, torch.Tensor
    ]  # arguments of the model's forward pass for images and videos, in the order of the trees
    targets: torch.Tensor  # [K] int64 response tokens, groups -> samples -> tokens
    logit_index: torch.Tensor  # [K] int64 index in T of the token whose logits predict each target


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

    return PackedTrees(
        input_ids=sent(_input_ids(trees), device)[None],
        position_ids=sent(_position_ids(trees, spans, images, videos, model_config), device),
        layout=TreeLayout(spans, device=device),
        vision=pixels.forward_inputs(list(chain(*images)), list(chain(*videos)), device),
        targets=sent(np.concatenate([r for tree in trees for r in tree.responses], dtype=np.int64), device),
        logit_index=sent(_logit_index(spans), device),
    )


def _input_ids(trees: Sequence[TreeInput]) -> Int64Array:
    pieces: list[Int32Array] = []
    for tree in trees:
        pieces += [tree.prompt.token_ids, *(response[:-1] for response in tree.responses)]
    return np.concatenate(pieces, dtype=np.int64)


def _position_ids(
    trees: Sequence[TreeInput],
    spans: TreeSpans,
    images: Sequence[Sequence[MediaInputs]],
    videos: Sequence[Sequence[MediaInputs]],
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
    prompt: Prompt, images: Sequence[MediaInputs], videos: Sequence[MediaInputs], model_config: PreTrainedConfig
) -> Int64Array:
    """[rows, P], of which a model with one for each of time, height and width has three. Raises ValueError as
    `pack_trees`."""
    vision = vision_of(model_config.model_type)
    if vision is None:
        return np.arange(len(prompt.token_ids), dtype=np.int64)[None]
    try:
        return vision.positions(prompt.token_ids, images, videos, model_config)
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
