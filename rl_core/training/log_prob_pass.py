"""Log-probs of given rollouts under a model, without a gradient: the reference pass, and recomputed old log-probs."""

from collections.abc import Sequence

import numpy as np
import torch

from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.training.microbatches import fill_batches
from rl_core.types import Float32Array, Group


@torch.no_grad()
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
    results: list[list[Float32Array]] = []
    for batch in fill_batches(groups, size=_tree_tokens, token_budget=token_budget):
        trees = [TreeInput(prompt=g.prompt, responses=[r.response_ids for r in g.rollouts]) for g in batch]
        packed = pack_trees(trees, pixels=pixels, model_config=model.config, device=model.device)
        flat = model(packed, temperature=temperature).log_probs.float().cpu().numpy()
        lengths = [len(r.response_ids) for g in batch for r in g.rollouts]
        pieces = iter(np.split(flat, np.cumsum(lengths)[:-1]))
        results.extend([next(pieces) for _ in g.rollouts] for g in batch)
    return results


def _tree_tokens(group: Group) -> int:
    return len(group.prompt.token_ids) + sum(len(rollout.response_ids) for rollout in group.rollouts)
