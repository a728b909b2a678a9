"""A trained module on disk: its float32 numbers, and what its optimizer keeps."""

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
    """Write the weights, those that are trained in float32; `trained_only` leaves the frozen ones out."""
    adamw = None if optimizer is None else optimizer.adamw
    save_sharded(folder, model_state(module, trained_only=trained_only) | master_weights(module, adamw))


def load_weights(folder: Path, module: nn.Module, *, trained_only: bool) -> LowerBits:
    """Take them back; gives what `load_optimizer` needs of them. Raises as load_sharded does."""
    numbers = empty_master_weights(module)
    load_model_state(folder, module, trained_only=trained_only, elsewhere=numbers)
    return take_master_weights(module, numbers)


def save_optimizer(folder: Path, module: nn.Module, optimizer: PolicyOptimizer) -> None:
    """Write the moments."""
    save_sharded(folder, optimizer_state(module, optimizer.adamw))


def load_optimizer(
    folder: Path | None,
    module: nn.Module,
    optimizer: PolicyOptimizer,
    *,
    lower_bits: LowerBits,
    counters: Mapping[str, int],
) -> None:
    """Take them back, equal to the bit; without a folder the moments start anew. Either way the float32 numbers are
    those that were saved, and so is the place in the schedule. Raises as load_sharded does."""
    if folder is None:
        optimizer.adamw.state.clear()
    else:
        load_optimizer_state(folder, module, optimizer.adamw)
    give_lower_bits(module, optimizer.adamw, lower_bits)
    optimizer.load_counters(counters)
