"""The learning rate of each optimizer step."""

import math

from rl_core.config.training import OptimConfig


def warmup_steps(config: OptimConfig, *, total_steps: int, steps_at_once: int = 1) -> int:
    """Optimizer steps of the warm-up: `lr_warmup_steps`, or int(`lr_warmup_ratio` x training steps) training steps, as
    in EasyR1. `total_steps` and `steps_at_once` are the optimizer steps of the run and of a training step."""
    if config.lr_warmup_ratio == 0.0:
        return config.lr_warmup_steps
    return int(config.lr_warmup_ratio * (total_steps // steps_at_once)) * steps_at_once


def scheduled_lr(step: int, *, config: OptimConfig, total_steps: int, steps_at_once: int = 1) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    It rises linearly to `lr` over the warm-up. Then `constant` stays at `lr`, and `cosine` falls to `min_lr_ratio *
    lr`, which it would reach in the step after the last one (Loshchilov and Hutter 2017, eq. 5, without restarts).
    """
    warmup = warmup_steps(config, total_steps=total_steps, steps_at_once=steps_at_once)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    if config.lr_scheduler_type == "constant":
        return config.lr
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    decayed = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * decayed)
