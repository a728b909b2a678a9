"""Packs groups into one sequence. Each group is a tree: its prompt once, followed by its branches, which are its
responses with what an environment has put into them.

A packed sequence of two groups, the first with two branches:

    prompt A | branch A0 | branch A1 | prompt B | branch B0

The last token of a branch predicts no target, so it is not an input: a branch of L tokens takes L - 1 places, and one
of a single token takes none. Only sampled tokens are targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from transformers import PreTrainedConfig

from rl_core.families.registry import vision_of
from rl_core.families.vision import MediaInputs
from rl_core.models.pixels import PixelCache
from rl_core.models.row_moves import sent
from rl_core.models.tree_layout import TreeLayout, TreeSpans, ranges
from rl_core.types import Insertion, Int32Array, Int64Array, Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeInput:
    """A prompt and the responses that branch from it, each [R] int32 with R >= 1; [response] -> its insertions, where
    there are any."""

    prompt: Prompt
    responses: Sequence[Int32Array]
    insertions: Sequence[Sequence[Insertion]] = ()

    @property
    def branches(self) -> "list[Branch]":
        """Of each response."""
        return [Branch.of(*one) for one in zip(self.responses, self.insertions or repeat(()), strict=False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A response as the model reads it: [L] int32 tokens, insertions included; [R] int64 places of the sampled tokens
    among them; and the images of the insertions, in order."""

    token_ids: Int32Array
    places: Int64Array
    image_uids: tuple[str, ...]

    @classmethod
    def of(cls, sampled: Int32Array, insertions: Sequence[Insertion]) -> "Branch":
        """The branch of a response."""
        places, pieces, done = np.arange(len(sampled), dtype=np.int64), [], 0
        for put in insertions:
            places[put.after :] += len(put.token_ids)
            pieces += [sampled[done : put.after], put.token_ids]
            done = put.after
        return cls(
            token_ids=np.concatenate([*pieces, sampled[done:]]) if pieces else sampled,
            places=places,
            image_uids=tuple(uid for put in insertions for uid in put.image_uids),
        )


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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tree:
    """A tree with the pixels of its prompt and of each branch."""

    prompt: Prompt
    branches: Sequence[Branch]
    images: Sequence[MediaInputs]
    videos: Sequence[MediaInputs]
    images_of_branches: Sequence[Sequence[MediaInputs]]

    @classmethod
    def of(cls, tree: TreeInput, pixels: PixelCache) -> "_Tree":
        branches = tree.branches
        return cls(
            prompt=tree.prompt,
            branches=branches,
            images=pixels.get(tree.prompt.image_uids),
            videos=pixels.get_videos(tree.prompt.videos),
            images_of_branches=[pixels.get(branch.image_uids) for branch in branches],
        )


def pack_trees(
    trees: Sequence[TreeInput], *, pixels: PixelCache, model_config: PreTrainedConfig, device: torch.device
) -> PackedTrees:
    """Raises ValueError if the vision tokens of a prompt or an insertion do not match its images and videos."""
    grown = [_Tree.of(tree, pixels) for tree in trees]
    spans = TreeSpans(
        [len(tree.prompt.token_ids) for tree in grown],
        [[len(branch.token_ids) - 1 for branch in tree.branches] for tree in grown],
    )
    images = chain.from_iterable((*tree.images, *chain(*tree.images_of_branches)) for tree in grown)
    videos = chain.from_iterable(tree.videos for tree in grown)

    return PackedTrees(
        input_ids=sent(_input_ids(grown), device)[None],
        position_ids=sent(_position_ids(grown, spans, model_config), device),
        layout=TreeLayout(spans, device=device),
        vision=pixels.forward_inputs(list(images), list(videos), device),
        targets=sent(np.concatenate([r for tree in trees for r in tree.responses], dtype=np.int64), device),
        logit_index=sent(_logit_index(grown, spans), device),
    )


def _input_ids(trees: Sequence[_Tree]) -> Int64Array:
    pieces: list[Int32Array] = []
    for tree in trees:
        pieces += [tree.prompt.token_ids, *(branch.token_ids[:-1] for branch in tree.branches)]
    return np.concatenate(pieces, dtype=np.int64)


def _position_ids(trees: Sequence[_Tree], spans: TreeSpans, model_config: PreTrainedConfig) -> Int64Array:
    """A branch continues after the largest position of its prompt."""
    prompts = [prompt_positions(tree.prompt, tree.images, tree.videos, model_config) for tree in trees]
    next_positions = np.array([positions.max() + 1 for positions in prompts], np.int64)[spans.response_prompt]
    positions = np.empty((len(prompts[0]), spans.num_tokens), np.int64)
    positions[:, ranges(spans.prompt_starts, spans.prompt_lengths)] = np.concatenate(prompts, axis=1)
    positions[:, ranges(spans.response_starts, spans.response_lengths)] = ranges(next_positions, spans.response_lengths)
    shown = chain.from_iterable(zip(tree.branches, tree.images_of_branches, strict=True) for tree in trees)
    for number, (branch, images) in enumerate(shown):
        if images:
            begin = spans.response_starts[number]
            positions[:, begin : begin + spans.response_lengths[number]] = next_positions[number] + _vision_positions(
                branch.token_ids[:-1], images, (), model_config, of="an insertion"
            )
    return positions[:, None] if len(positions) == 3 else positions


def prompt_positions(
    prompt: Prompt, images: Sequence[MediaInputs], videos: Sequence[MediaInputs], model_config: PreTrainedConfig
) -> Int64Array:
    """[rows, P], of which a model with one for each of time, height and width has three. Raises ValueError as
    `pack_trees`."""
    return _vision_positions(prompt.token_ids, images, videos, model_config, of=f"prompt {prompt.uid!r}")


def _vision_positions(
    token_ids: Int32Array,
    images: Sequence[MediaInputs],
    videos: Sequence[MediaInputs],
    model_config: PreTrainedConfig,
    *,
    of: str,
) -> Int64Array:
    vision = vision_of(model_config.model_type)
    if vision is None:
        return np.arange(len(token_ids), dtype=np.int64)[None]
    try:
        return vision.positions(token_ids, images, videos, model_config)
    except ValueError as error:
        raise ValueError(f"{of}: {error}. Prepare the data with this model's processor and pixel limits") from error


def _logit_index(trees: Sequence[_Tree], spans: TreeSpans) -> Int64Array:
    """The last token of the prompt predicts the first token of a branch; each later sampled token is predicted by the
    token before it, sampled or not."""
    branches = [branch for tree in trees for branch in tree.branches]
    index = np.concatenate([branch.places for branch in branches])
    lengths = np.array([len(branch.places) for branch in branches])
    index += np.repeat(spans.response_starts - 1, lengths)
    index[np.cumsum(lengths) - lengths] = spans.prompt_ends[spans.response_prompt] - 1
    return index
