"""Forward passes over rollouts without gradients: log-probs under a model, KL between two models, values."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rl_core.models.output_head import PolicyOutput
from rl_core.models.packing import PackedTrees, TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.models.value import ValueModel
from rl_core.training.microbatches import fill_batches, split_tree
from rl_core.types import Float32Array, Group


def compute_log_probs(
    model: PolicyModel, groups: Sequence[Group], *, pixels: PixelCache, temperature: float, token_budget: int
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 log-probs of the sampled tokens.

    Args:
        model: Policy or reference.
        groups: Whole groups. Each is one tree, or several if it exceeds the budget; trees are packed in their order up
            to the budget.
        pixels: Pixel tensors of the step's images.
        temperature: The sampling temperature, because the log-probs belong to the distribution that was sampled from.
        token_budget: Most tree tokens of a forward; a single prompt with one response may exceed it.
    """

    def log_probs(packed: PackedTrees) -> torch.Tensor:
        output: PolicyOutput = model(packed, temperature=temperature)
        return output.log_probs

    return _by_token(log_probs, model, groups, pixels=pixels, token_budget=token_budget)


def compute_full_kl(
    model: PolicyModel,
    reference: PolicyModel,
    groups: Sequence[Group],
    *,
    pixels: PixelCache,
    temperature: float,
    token_budget: int,
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 KL(model || reference) at each token, over the whole vocabulary.

    Arguments as for `compute_log_probs`.
    """

    def full_kl(packed: PackedTrees) -> torch.Tensor:
        output: PolicyOutput = model(packed, temperature=temperature, reference=reference.head_rows(packed))
        assert output.full_kl is not None, "a reference was given"
        return output.full_kl

    return _by_token(full_kl, model, groups, pixels=pixels, token_budget=token_budget)


def compute_values(
    critic: ValueModel, groups: Sequence[Group], *, pixels: PixelCache, token_budget: int
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 value before each token. Arguments as for `compute_log_probs`."""
    return _by_token(critic, critic, groups, pixels=pixels, token_budget=token_budget)


@torch.no_grad()
def _by_token(
    values: Callable[[PackedTrees], torch.Tensor],
    model: PolicyModel | ValueModel,
    groups: Sequence[Group],
    *,
    pixels: PixelCache,
    token_budget: int,
) -> list[list[Float32Array]]:
    """`values` of every response token, split by group and rollout."""
    trees = [tree for group in groups for tree in _trees(group, token_budget)]
    pieces: list[Float32Array] = []
    for batch in fill_batches(trees, size=_tokens, token_budget=token_budget):
        packed = pack_trees(batch, pixels=pixels, model_config=model.config, device=model.device)
        flat = values(packed).float().cpu().numpy()
        lengths = [len(response) for tree in batch for response in tree.responses]
        pieces += np.split(flat, np.cumsum(lengths)[:-1])
    in_order = iter(pieces)
    return [[next(in_order) for _ in group.rollouts] for group in groups]


def _trees(group: Group, token_budget: int) -> list[TreeInput]:
    """The group as one tree, or as several if it exceeds the budget."""
    responses = [rollout.response_ids for rollout in group.rollouts]
    parts = split_tree(len(group.prompt.token_ids), list(map(len, responses)), token_budget=token_budget)
    return [TreeInput(prompt=group.prompt, responses=responses[part]) for part in parts]


def _tokens(tree: TreeInput) -> int:
    return len(tree.prompt.token_ids) + sum(map(len, tree.responses))
