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
from rl_core.models.positions import Int64Array, mrope_positions
from rl_core.models.tree_layout import TreeLayout
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
    layout = TreeLayout(
        [len(tree.prompt.token_ids) for tree in trees],
        [[len(response) - 1 for response in tree.responses] for tree in trees],
        device=device,
    )

    def on_device(array: Int64Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return PackedTrees(
        input_ids=on_device(_input_ids(trees))[None],
        position_ids=on_device(_position_ids(trees, images, model_config)),
        layout=layout,
        pixel_values=torch.cat([image.values for image in images]).to(device) if images else None,
        image_grid_thw=on_device(np.array([image.grid_thw for image in images], np.int64)) if images else None,
        targets=on_device(np.concatenate([r for tree in trees for r in tree.responses], dtype=np.int64)),
        logit_index=on_device(_logit_index(trees)),
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
    trees: Sequence[TreeInput], images: Sequence[ImagePixels], model_config: PreTrainedConfig
) -> Int64Array:
    """[3, 1, T] or [1, T]: every response continues after the largest position of its prompt."""
    remaining = list(images)
    pieces: list[Int64Array] = []
    for tree in trees:
        own, remaining = remaining[: len(tree.prompt.image_uids)], remaining[len(tree.prompt.image_uids) :]
        prompt = prompt_positions(tree.prompt, own, model_config)
        pieces.append(prompt)
        start = int(prompt.max()) + 1
        for response in tree.responses:
            steps = np.arange(start, start + len(response) - 1, dtype=np.int64)
            pieces.append(np.broadcast_to(steps, (prompt.shape[0], len(steps))))
    positions = np.concatenate(pieces, axis=1)
    return positions[:, None] if len(positions) == 3 else positions


def prompt_positions(prompt: Prompt, images: Sequence[ImagePixels], model_config: PreTrainedConfig) -> Int64Array:
    """[3, P] positions for a model with vision, [1, P] for a text model.

    Raises:
        ValueError: Image tokens and images do not match, or a text model is given images.
    """
    vision_config = getattr(model_config, "vision_config", None)
    if vision_config is None:
        if images:
            raise ValueError(f"prompt {prompt.uid!r} has images, but {model_config.model_type} reads text only")
        return np.arange(len(prompt.token_ids), dtype=np.int64)[None]
    try:
        return mrope_positions(
            prompt.token_ids,
            [image.grid_thw for image in images],
            image_token_id=model_config.image_token_id,
            merge_size=vision_config.spatial_merge_size,
        )
    except ValueError as error:
        raise ValueError(
            f"prompt {prompt.uid!r}: {error}. Prepare the data with this model's processor and pixel limits"
        ) from error


def _logit_index(trees: Sequence[TreeInput]) -> Int64Array:
    """The first token of a response is predicted by the last of the prompt, each later one by the token before it."""
    pieces: list[Int64Array] = []
    offset = 0
    for tree in trees:
        offset += len(tree.prompt.token_ids)
        prompt_end = offset - 1
        for response in tree.responses:
            index = np.arange(offset - 1, offset + len(response) - 1, dtype=np.int64)
            index[0] = prompt_end
            pieces.append(index)
            offset += len(response) - 1
    return np.concatenate(pieces)
