"""Saves and loads a trained module: its weights, and the moments of its optimizer.

A checkpoint holds the float32 master weights that the optimizer updates. How they are kept in memory is up to the
worker. Here a trained bfloat16 weight holds the upper half of its master weight, and SplitAdamW holds the lower bits.
Under FSDP2 with MixedPrecisionPolicy the sharded float32 parameters are the master weights. Both read and write the
same tensors, and train the same numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn
from torch.distributed import ProcessGroup

from rl_core.checkpoints.host_copy import HostCopies, State
from rl_core.checkpoints.sharded import (
    load_model_state,
    load_optimizer_state,
    model_state,
    optimizer_state,
    save_sharded,
)
from rl_core.digests import FileRecord
from rl_core.distributed.shards import by_part, local_part, reshard
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.split_adamw import SplitAdamW, join, split

LowerBits = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleState:
    """What a checkpoint holds of a trained module."""

    weights: State  # name -> tensor; for a trained bfloat16 weight, its float32 master weight
    moments: State | None  # Parameter name -> the optimizer's entries; None if they are left out

    @classmethod
    def of(
        cls,
        module: nn.Module,
        optimizer: PolicyOptimizer,
        *,
        trained_only: bool,
        model_only: bool,
        copies: HostCopies | None,
    ) -> Self:
        """The present state; with `trained_only` without frozen weights, with `model_only` without moments. `copies`
        receive the tensors, so that they can be written while training goes on. If None, the tensors are those of
        module and optimizer, except for the master weights, which are made here."""
        reshard(module)
        masters = master_weights(module, optimizer.adamw)
        weights = model_state(module, trained_only=trained_only)
        moments = {} if model_only else optimizer_state(module, optimizer.adamw)
        if copies is not None:
            own = {name: weight for name, weight in weights.items() if name not in masters}
            weights, moments = weights | copies.of("model", own), copies.of("optimizer", moments)
        return cls(weights=weights | masters, moments=None if model_only else moments)

    def write(self, folder: Path, *, process_group: ProcessGroup | None = None) -> dict[str, FileRecord]:
        """Write the folder `model`, and `optimizer` unless the moments are left out; each rank writes its shards.
        Returns size and hash of the files that this one has written."""
        parts = {"model": self.weights} | ({} if self.moments is None else {"optimizer": self.moments})
        return {
            f"{part}/{name}": record
            for part, state in parts.items()
            for name, record in save_sharded(folder / part, state, process_group=process_group).items()
        }


def load_weights(
    folder: Path, module: nn.Module, *, trained_only: bool, process_group: ProcessGroup | None = None
) -> LowerBits:
    """Load the weights, whatever number of ranks has written them. Returns the lower bits of the master weights, which
    `load_optimizer` takes. Raises MismatchedState as `load_sharded`."""
    reshard(module)
    masters = empty_master_weights(module)
    load_model_state(folder, module, trained_only=trained_only, elsewhere=masters, process_group=process_group)
    return take_master_weights(module, masters)


def load_optimizer(
    folder: Path | None,
    module: nn.Module,
    optimizer: PolicyOptimizer,
    *,
    lower_bits: LowerBits,
    counters: Mapping[str, int],
    process_group: ProcessGroup | None = None,
) -> None:
    """Load the moments, equal to the bit; without a folder they start from zero. In both cases the master weights and
    the position in the learning rate schedule are restored. Raises MismatchedState as `load_sharded`."""
    if folder is None:
        optimizer.adamw.state.clear()
    else:
        adamw = optimizer.adamw
        in_host_memory = isinstance(adamw, SplitAdamW) and adamw.in_host_memory
        load_optimizer_state(folder, module, adamw, in_host_memory=in_host_memory, process_group=process_group)
    give_lower_bits(module, optimizer.adamw, lower_bits)
    optimizer.load_counters(counters)


def master_weights(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """name -> [...] float32, the master weight of every trained bfloat16 weight, on the CPU: they take twice the memory
    of the weights, which the plan of the device's memory does not include."""
    if not isinstance(optimizer, SplitAdamW):
        return {}
    lower_bits = optimizer.lower_bits
    return {name: by_part(_join_on_device, weight, lower_bits[weight]).cpu() for name, weight in _split_weights(module)}


def empty_master_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Uninitialised tensors with the names and shapes of `master_weights`."""
    return {
        name: torch.empty_like(weight, dtype=torch.float32, device="cpu", requires_grad=False)
        for name, weight in _split_weights(module)
    }


@torch.no_grad()
def take_master_weights(module: nn.Module, masters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Set the weights, in place, to the upper halves of their master weights. Returns name -> [...] int16, the lower
    bits; of sharded weights this rank's part."""
    lower_bits = {}
    for name, weight in _split_weights(module):
        upper, lower_bits[name] = split(local_part(masters[name]).to(weight.device))
        local_part(weight).copy_(upper)
    return lower_bits


def give_lower_bits(
    module: nn.Module, optimizer: torch.optim.Optimizer, lower_bits: Mapping[str, torch.Tensor]
) -> None:
    """Lower bits are those that `take_master_weights` returned."""
    if isinstance(optimizer, SplitAdamW):
        for name, weight in _split_weights(module):
            optimizer.take_lower_bits(weight, lower_bits[name])


def _join_on_device(weight: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
    return join(weight, lower.to(weight.device))


def _split_weights(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype == torch.bfloat16:
            yield name, parameter
