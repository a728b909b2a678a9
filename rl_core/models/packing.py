"""Packing groups into one sequence: each group is a tree, its prompt once and its responses beside each other.

A packed sequence of two groups, the first with two responses:

    prompt A | response A0 | response A1 | prompt B | response B0

The last token of a response predicts nothing that is asked for, so it is a target and never an input: a response of R
tokens occupies R - 1 places, and one of a single token none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedConfig

from rl_core.models.pixels import ImagePixels, PixelCache
from rl_core.models.positions import mrope_positions
from rl_core.models.tree_layout import Int64Array, TreeLayout, TreeSpans, ranges
from rl_core.types import Int32Array, Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeInput:
    """A prompt and the responses that branch from it, each [R] int32 with R >= 1."""

    prompt: Prompt
    responses: Sequence[Int32Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedTrees:
    """One micro-batch, ready for the policy's forward. K is the number of response tokens.

    Attributes:
        input_ids: [1, T] int64.
        position_ids: [3, 1, T] int64 for models with vision (time, height, width), [1, T] for text models.
        layout: Which token attends to which.
        pixel_values: [N, C] float32 patches of the images in the order of the trees; None without images.
        image_grid_thw: [images, 3] int64; None without images.
        targets: [K] int64 response tokens, groups -> samples -> tokens.
        logit_index: [K] int64 place in T of the token whose logits predict each target.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    layout: TreeLayout
    pixel_values: torch.Tensor | None
    image_grid_thw: torch.Tensor | None
    targets: torch.Tensor
    logit_index: torch.Tensor


def pack_trees(
    trees: Sequence[TreeInput], *, pixels: PixelCache, model_config: PreTrainedConfig, device: torch.device
) -> PackedTrees:
    """Lay trees one after the other in one sequence.

    Args:
        trees: At least one, each with at least one response of at least one token.
        pixels: Pixel tensors of the prompts' images.
        model_config: The Hugging Face config of the model that will read them.
        device: Where the tensors go.

    Raises:
        ValueError: No tree, no response, an empty response, or a prompt whose image tokens do not match its images.
    """
    _check(trees)
    images = pixels.get([uid for tree in trees for uid in tree.prompt.image_uids])
    spans = TreeSpans(
        [len(tree.prompt.token_ids) for tree in trees],
        [[len(response) - 1 for response in tree.responses] for tree in trees],
    )

    def on_device(array: Int64Array) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return PackedTrees(
        input_ids=on_device(_input_ids(trees))[None],
        position_ids=on_device(_position_ids(trees, spans, images, model_config)),
        layout=TreeLayout(spans, device=device),
        pixel_values=torch.cat([image.values for image in images]).to(device) if images else None,
        image_grid_thw=on_device(np.array([image.grid_thw for image in images], np.int64)) if images else None,
        targets=on_device(np.concatenate([r for tree in trees for r in tree.responses], dtype=np.int64)),
        logit_index=on_device(_logit_index(spans)),
    )


def _check(trees: Sequence[TreeInput]) -> None:
    if not trees:
        raise ValueError("nothing to pack: no tree was given")
    for tree in trees:
        if not tree.responses or not all(len(response) for response in tree.responses):
            raise ValueError(f"prompt {tree.prompt.uid!r} has no response or an empty one; a response has >= 1 token")


def _input_ids(trees: Sequence[TreeInput]) -> Int64Array:
    pieces: list[Int32Array] = []
    for tree in trees:
        pieces += [tree.prompt.token_ids, *(response[:-1] for response in tree.responses)]
    return np.concatenate(pieces, dtype=np.int64)


def _position_ids(
    trees: Sequence[TreeInput], spans: TreeSpans, images: Sequence[ImagePixels], model_config: PreTrainedConfig
) -> Int64Array:
    """[3, 1, T] for a model with vision, [1, T] for a text model; a response goes on after its prompt's largest."""
    prompts = _prompt_positions(trees, images, model_config)
    next_positions = np.array([positions.max() + 1 for positions in prompts], np.int64)
    positions = np.empty((len(prompts[0]), spans.num_tokens), np.int64)
    positions[:, ranges(spans.prompt_starts, spans.prompt_lengths)] = np.concatenate(prompts, axis=1)
    positions[:, ranges(spans.response_starts, spans.response_lengths)] = ranges(
        next_positions[spans.response_prompt], spans.response_lengths
    )
    return positions[:, None] if len(positions) == 3 else positions


def _prompt_positions(
    trees: Sequence[TreeInput], images: Sequence[ImagePixels], model_config: PreTrainedConfig
) -> list[Int64Array]:
    """[3, P] of each prompt for a model with vision, [1, P] for a text model."""
    vision_config = getattr(model_config, "vision_config", None)
    if vision_config is None:
        if images:
            raise ValueError(f"the prompts have images, but {model_config.model_type} reads text only")
        return [np.arange(len(tree.prompt.token_ids), dtype=np.int64)[None] for tree in trees]
    image_token_id, merge_size = model_config.image_token_id, vision_config.spatial_merge_size
    grids = iter([image.grid_thw for image in images])
    prompts: list[Int64Array] = []
    for prompt in (tree.prompt for tree in trees):
        own = [next(grids) for _ in prompt.image_uids]
        try:
            prompts.append(mrope_positions(prompt.token_ids, own, image_token_id=image_token_id, merge_size=merge_size))
        except ValueError as error:
            raise ValueError(
                f"prompt {prompt.uid!r}: {error}. Prepare the data with this model's processor and pixel limits"
            ) from error
    return prompts


def _logit_index(spans: TreeSpans) -> Int64Array:
    """The first token of a response is predicted by the last of its prompt, each later one by the token before it."""
    lengths = spans.response_lengths + 1
    index = ranges(spans.response_starts - 1, lengths)
    index[np.cumsum(lengths) - lengths] = spans.prompt_ends[spans.response_prompt] - 1
    return index
