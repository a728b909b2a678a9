"""Saves and loads a trained module: its master weights, and the moments of its optimizer."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from rl_core.checkpoints.sharded import (
    load_model_state,
    load_optimizer_state,
    model_state,
    optimizer_state,
    save_sharded,
)
from rl_core.training.master_weights import empty_master_weights, give_lower_bits, master_weights, take_master_weights
from rl_core.training.optimizer import PolicyOptimizer

LowerBits = Mapping[str, torch.Tensor]


def save_weights(folder: Path, module: nn.Module, optimizer: PolicyOptimizer | None, *, trained_only: bool) -> None:
    """Write the weights; for a trained bfloat16 weight, its float32 master weight. With `trained_only`, frozen weights
    are not written."""
    adamw = None if optimizer is None else optimizer.adamw
    save_sharded(folder, model_state(module, trained_only=trained_only) | master_weights(module, adamw))


def load_weights(folder: Path, module: nn.Module, *, trained_only: bool) -> LowerBits:
    """Load the weights. Returns the lower bits of the master weights, which `load_optimizer` takes.

    Raises:
        MismatchedState: a tensor is missing, or has another shape or number format; see `load_sharded`.
    """
    masters = empty_master_weights(module)
    load_model_state(folder, module, trained_only=trained_only, elsewhere=masters)
    return take_master_weights(module, masters)


def save_optimizer(folder: Path, module: nn.Module, optimizer: PolicyOptimizer) -> None:
    """Write the moments of the optimizer."""
    save_sharded(folder, optimizer_state(module, optimizer.adamw))


def load_optimizer(
    folder: Path | None,
    module: nn.Module,
    optimizer: PolicyOptimizer,
    *,
    lower_bits: LowerBits,
    counters: Mapping[str, int],
) -> None:
    """Load the moments, equal to the bit; without a folder they start from zero. In both cases the master weights and
    the position in the learning rate schedule are restored.

    Raises:
        MismatchedState: a tensor is missing, or has another shape or number format; see `load_sharded`.
    """
    if folder is None:
        optimizer.adamw.state.clear()
    else:
        load_optimizer_state(folder, module, optimizer.adamw)
    give_lower_bits(module, optimizer.adamw, lower_bits)
    optimizer.load_counters(counters)
