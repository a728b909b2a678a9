"""The supervised step of the cold start: imitate given responses."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.models.packing import pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.training.equal_passes import equal_passes
from rl_core.training.microbatches import fill_batches, tree_tokens
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import Group, Rollout, SupervisedExample


def imitate(
    policy: PolicyModel,
    examples: Sequence[SupervisedExample],
    *,
    optimizer: PolicyOptimizer,
    pixels: PixelCache,
    token_budget: int,
    ranks: Ranks = LONE,
) -> dict[str, float]:
    """One optimizer step on the mean negative log-likelihood (nats per token) of the target tokens, over the whole
    batch, which every rank gets; of n learners each computes every n-th example. Returns the metrics."""
    total_tokens = sum(len(example.target_ids) for example in examples)
    loss_sum = torch.zeros(())
    own = [_as_group(example) for example in examples[ranks.learner :: ranks.learners]]
    for one in equal_passes(fill_batches(own, size=tree_tokens, token_budget=token_budget), ranks):
        packed = pack_trees(one.trees, pixels=pixels, model_config=policy.config, device=policy.device)
        log_probs = policy(packed, temperature=1.0).log_probs
        loss = -log_probs[: one.num_tokens].sum() / total_tokens
        one.backward(log_probs, loss)
        loss_sum += loss.detach().cpu()
    sum_gradients(policy, ranks)
    outcome = optimizer.step()
    return {
        "cold_start/loss": math.fsum(ranks.gather_from_learners(float(loss_sum))),
        "cold_start/grad_norm": outcome.grad_norm,
        "cold_start/lr": outcome.lr,
        "cold_start/nonfinite_streak": float(optimizer.nonfinite_streak),
    }


def _as_group(example: SupervisedExample) -> Group:
    response = Rollout(
        prompt_uid=example.prompt.uid,
        sample_index=0,
        response_ids=example.target_ids,
        log_probs=np.zeros(len(example.target_ids), np.float32),
        text="",
        finish_reason="stop",
        policy_version=0,
    )
    return Group(prompt=example.prompt, rollouts=[response])
