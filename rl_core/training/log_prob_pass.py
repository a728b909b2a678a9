"""Passes over given rollouts without a gradient: log-probs under a model, KL between two models, values."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rl_core.models.output_head import PolicyOutput
from rl_core.models.packing import PackedTrees, TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.models.value import ValueModel
from rl_core.training.microbatches import fill_batches
from rl_core.types import Float32Array, Group


def compute_log_probs(
    model: PolicyModel, groups: Sequence[Group], *, pixels: PixelCache, temperature: float, token_budget: int
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 log-probs of the sampled tokens.

    Args:
        model: Policy or reference.
        groups: Whole groups; each is one tree, and trees are packed up to the budget in their order.
        pixels: Pixel tensors of the step's images.
        temperature: The sampling temperature; the log-probs are those of the distribution sampled from.
        token_budget: Tree tokens of one forward.
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
    """`values` of every response token, cut back into groups and rollouts."""
    results: list[list[Float32Array]] = []
    for batch in fill_batches(groups, size=_tree_tokens, token_budget=token_budget):
        trees = [TreeInput(prompt=g.prompt, responses=[r.response_ids for r in g.rollouts]) for g in batch]
        packed = pack_trees(trees, pixels=pixels, model_config=model.config, device=model.device)
        flat = values(packed).float().cpu().numpy()
        lengths = [len(r.response_ids) for g in batch for r in g.rollouts]
        pieces = iter(np.split(flat, np.cumsum(lengths)[:-1]))
        results.extend([next(pieces) for _ in g.rollouts] for g in batch)
    return results


def _tree_tokens(group: Group) -> int:
    return len(group.prompt.token_ids) + sum(len(rollout.response_ids) for rollout in group.rollouts)
