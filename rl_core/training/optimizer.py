"""AdamW with a learning rate schedule and gradient clipping; a step with a non-finite gradient is skipped."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.distributed.shards import reshard, whole
from rl_core.training.split_adamw import SplitAdamW


class NonFiniteGradients(RuntimeError):
    """Too many optimizer steps in a row had a non-finite gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutcome:
    """One optimizer step: gradient norm before clipping, learning rate, and whether the weights changed."""

    grad_norm: float
    lr: float
    applied: bool


class PolicyOptimizer:
    """Owns the optimizer state of one module, policy or critic, and counts its steps, of which a training step has
    `steps_at_once`. With `in_host_memory` the moments lie in the host's memory."""

    def __init__(
        self,
        module: nn.Module,
        *,
        config: OptimConfig,
        max_grad_norm: float,
        total_steps: int,
        steps_at_once: int = 1,
        in_host_memory: bool = False,
    ) -> None:
        reshard(module)  # the optimizer updates the shards
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._config = config
        self._max_grad_norm = max_grad_norm
        self._total_steps = total_steps
        self._steps_at_once = steps_at_once
        self.adamw = make_adamw(self._parameters, config, in_host_memory=in_host_memory)
        self.steps = 0
        self.nonfinite_streak = 0

    def step(self) -> StepOutcome:
        """Clip the gradient, update the weights, and clear it. A non-finite gradient (an overflow, a bad sample) would
        destroy every weight at once: the step is skipped and counted in `nonfinite_streak`."""
        lr = scheduled_lr(
            self.steps, config=self._config, total_steps=self._total_steps, steps_at_once=self._steps_at_once
        )
        for group in self.adamw.param_groups:
            group["lr"] = lr
        grad_norm = float(whole(nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)))
        applied = grad_norm - grad_norm == 0.0  # false for inf and nan
        if applied:
            self.adamw.step()
            self.nonfinite_streak = 0
        else:
            self.nonfinite_streak += 1
        self.adamw.zero_grad(set_to_none=True)
        self.steps += 1
        return StepOutcome(grad_norm=grad_norm, lr=lr, applied=applied)

    def counters(self) -> dict[str, Any]:
        """For a checkpoint, besides AdamW's own state."""
        return {
            "steps": self.steps,
            "steps_at_once": self._steps_at_once,
            "nonfinite_streak": self.nonfinite_streak,
        }

    def load_counters(self, counters: Mapping[str, Any]) -> None:
        """What `counters` returned. Where a training step had another number of optimizer steps there, they are counted
        as if it had had today's, so that the schedule goes on at the same share of the training steps."""
        before = counters.get("steps_at_once", self._steps_at_once)  # not in a checkpoint of earlier software
        self.steps = counters["steps"]
        if before != self._steps_at_once:
            self.steps = self.steps * self._steps_at_once // before
        self.nonfinite_streak = counters["nonfinite_streak"]


def make_adamw(
    parameters: list[nn.Parameter], config: OptimConfig, *, in_host_memory: bool = False
) -> torch.optim.Optimizer:
    """torch's AdamW for float32 parameters; SplitAdamW, as `config.strategy` says, if some are bfloat16 or the moments
    are kept in the host's memory. Both compute the same numbers for float32 parameters."""
    bfloat16 = [parameter for parameter in parameters if parameter.dtype == torch.bfloat16]
    groups = decay_groups(parameters, config.weight_decay)
    if not bfloat16 and not in_host_memory:
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
    first_moment = torch.bfloat16 if config.strategy == "adamw_bf16" else torch.float32
    for parameter in bfloat16:
        parameter.grad_dtype = first_moment  # the gradients of micro-batches are added in this format
    return SplitAdamW(
        groups,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        first_moment=first_moment,
        in_host_memory=in_host_memory,
    )


def decay_groups(parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: weight decay for matrices, none for biases and norm scales."""
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def warmup_steps(config: OptimConfig, *, total_steps: int, steps_at_once: int = 1) -> int:
    """Optimizer steps of the warm-up: `lr_warmup_steps`, or int(`lr_warmup_ratio` x training steps) training steps, as
    in EasyR1. `total_steps` and `steps_at_once` are the optimizer steps of the run and of a training step."""
    if config.lr_warmup_ratio == 0.0:
        return config.lr_warmup_steps
    return int(config.lr_warmup_ratio * (total_steps // steps_at_once)) * steps_at_once


def scheduled_lr(step: int, *, config: OptimConfig, total_steps: int, steps_at_once: int = 1) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    It rises linearly to `lr` over the warm-up. `constant` stays there, the others fall to `min_lr_ratio * lr`, which
    would be reached in the step after the last one: `linear` and `cosine` (Loshchilov and Hutter 2017, eq. 5, without
    restarts) from the warm-up on, `wsd` linearly over the last `lr_decay_ratio` of the steps (Hu et al. 2024, MiniCPM,
    section 4; Hägele et al. 2024, section 3).
    """
    warmup = warmup_steps(config, total_steps=total_steps, steps_at_once=steps_at_once)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    if config.lr_scheduler_type == "constant":
        return config.lr
    falls_from = warmup
    if config.lr_scheduler_type == "wsd":
        falls_from = max(warmup, total_steps - math.ceil(config.lr_decay_ratio * total_steps))
    progress = min(1.0, max(0, step - falls_from) / max(1, total_steps - falls_from))
    decayed = 0.5 * (1.0 + math.cos(math.pi * progress)) if config.lr_scheduler_type == "cosine" else 1.0 - progress
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * decayed)
