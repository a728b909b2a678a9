"""The learning rate of each optimizer step."""

import math

from rl_core.config.training import OptimConfig


def scheduled_lr(step: int, *, config: OptimConfig, total_steps: int) -> float:
    """Learning rate of optimizer step `step`, counted from 0, of `total_steps`.

    It rises linearly to `lr` over the warm-up. From there `constant` stays and `cosine` falls to `min_lr_ratio * lr`,
    which the step after the last would have (Loshchilov and Hutter 2017, eq. 5, without restarts); later ones stay
    there.
    """
    warmup = config.lr_warmup_steps
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    if config.lr_scheduler_type == "constant":
        return config.lr
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    decayed = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * decayed)
