"""The supervised step of the cold start: imitate given responses."""

from collections.abc import Sequence

import torch

from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.training.microbatches import fill_batches
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import SupervisedExample


def imitate(
    policy: PolicyModel,
    examples: Sequence[SupervisedExample],
    *,
    optimizer: PolicyOptimizer,
    pixels: PixelCache,
    token_budget: int,
) -> dict[str, float]:
    """One optimizer step on the mean negative log-likelihood of the target tokens, over the whole batch.

    Returns:
        `cold_start/loss` (nats per token), `cold_start/grad_norm`, `cold_start/lr`, and `cold_start/nonfinite_streak`:
        how many steps in a row, up to this one, were skipped because of a non-finite gradient.
    """
    total_tokens = sum(len(example.target_ids) for example in examples)
    loss_sum = torch.zeros(())
    for batch in fill_batches(examples, size=_tokens, token_budget=token_budget):
        trees = [TreeInput(prompt=example.prompt, responses=[example.target_ids]) for example in batch]
        packed = pack_trees(trees, pixels=pixels, model_config=policy.config, device=policy.device)
        loss = -policy(packed, temperature=1.0).log_probs.sum() / total_tokens
        loss.backward()
        loss_sum += loss.detach().cpu()
    outcome = optimizer.step()
    return {
        "cold_start/loss": float(loss_sum),
        "cold_start/grad_norm": outcome.grad_norm,
        "cold_start/lr": outcome.lr,
        "cold_start/nonfinite_streak": float(optimizer.nonfinite_streak),
    }


def _tokens(example: SupervisedExample) -> int:
    return len(example.prompt.token_ids) + len(example.target_ids)
