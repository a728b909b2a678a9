"""Forward passes over rollouts without gradients: log-probs under a model, KL between two models, values."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rl_core.distributed.ranks import LONE, Ranks
from rl_core.distributed.shards import reshard
from rl_core.models.output_head import PolicyOutput
from rl_core.models.packing import PackedTrees, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.models.value import ValueModel
from rl_core.training.equal_passes import equal_passes
from rl_core.training.microbatches import split_into_microbatches
from rl_core.types import Float32Array, Group, RolloutKey


def compute_log_probs(
    model: PolicyModel,
    groups: Sequence[Group],
    *,
    pixels: PixelCache,
    temperature: float,
    token_budget: int,
    ranks: Ranks = LONE,
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 log-probs of the sampled tokens, under the temperature that they were sampled
    with. Whole groups are split into the micro-batches that an update with this token budget makes of them, so that
    both give the same log-probs to the bit."""

    def log_probs(packed: PackedTrees) -> torch.Tensor:
        output: PolicyOutput = model(packed, temperature=temperature)
        return output.log_probs

    return _by_token(log_probs, model, groups, pixels=pixels, token_budget=token_budget, ranks=ranks)


def compute_full_kl(
    model: PolicyModel,
    reference: PolicyModel,
    groups: Sequence[Group],
    *,
    pixels: PixelCache,
    temperature: float,
    token_budget: int,
    ranks: Ranks = LONE,
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 KL(model || reference) at each token, over the whole vocabulary."""

    def full_kl(packed: PackedTrees) -> torch.Tensor:
        output: PolicyOutput = model(packed, temperature=temperature, reference=reference.head_rows(packed))
        assert output.full_kl is not None, "a reference was given"
        return output.full_kl

    found = _by_token(full_kl, model, groups, pixels=pixels, token_budget=token_budget, ranks=ranks)
    reshard(reference)
    return found


def compute_values(
    critic: ValueModel, groups: Sequence[Group], *, pixels: PixelCache, token_budget: int, ranks: Ranks = LONE
) -> list[list[Float32Array]]:
    """[group][rollout] -> [R] float32 value before each token."""
    return _by_token(critic, critic, groups, pixels=pixels, token_budget=token_budget, ranks=ranks)


@torch.no_grad()
def _by_token(
    values: Callable[[PackedTrees], torch.Tensor],
    model: PolicyModel | ValueModel,
    groups: Sequence[Group],
    *,
    pixels: PixelCache,
    token_budget: int,
    ranks: Ranks,
) -> list[list[Float32Array]]:
    found: dict[RolloutKey, Float32Array] = {}
    for one in equal_passes(split_into_microbatches(groups, token_budget=token_budget), ranks):
        packed = pack_trees(one.trees, pixels=pixels, model_config=model.config, device=model.device)
        flat = values(packed)[: one.num_tokens].float().cpu().numpy()
        rollouts = [rollout for group in one.groups for rollout in group.rollouts]
        ends = np.cumsum([len(rollout.response_ids) for rollout in rollouts])
        found |= zip([rollout.key for rollout in rollouts], np.split(flat, ends)[:-1], strict=True)
    reshard(model)
    return [[found[rollout.key] for rollout in group.rollouts] for group in groups]
