"""Moves rows of a packed sequence into slots and back, and copies rows, with deterministic gradients.

The backward pass of plain indexing adds the gradients of repeated rows from several threads in an arbitrary order, so
that above 32,768 numbers the last bits of a gradient differ between equal runs. The functions here compute the same;
their backward passes gather rows, or add the copies of a row one after the other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rl_core.families.vision import moved
from rl_core.types import Int64Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Copies:
    """Which row each copy repeats."""

    rows: torch.Tensor  # [C] int64 the row of each copy; a row may have any number of copies
    # The copies in rounds, each with at most one copy of a row: pairs of [c] int64 rows and [c] int64 indices of their
    # copies
    rounds: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @classmethod
    def of(cls, rows: Int64Array, *, device: torch.device) -> "Copies":
        """The first copies of all `rows` [C] are one round, the second ones another, ..."""
        by_row = np.argsort(rows, kind="stable")
        ordered = rows[by_row]
        rank = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
        parts = [by_row[rank == number] for number in range(int(rank.max(initial=-1)) + 1)]

        rounds = tuple((sent(rows[part], device), sent(part, device)) for part in parts)
        return cls(rows=sent(rows, device), rounds=rounds)


def sent(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """The array as a tensor on the device. The host does not wait for a GPU: the copy starts from pinned memory."""
    return moved(torch.from_numpy(array), device)


def pad(rows: torch.Tensor, *, slot_rows: torch.Tensor, row_slot: torch.Tensor) -> torch.Tensor:
    """Put rows into slots: [T, ...] -> [S, ...], from the row of each slot, [S] int64, and the only slot of each row,
    [T] int64. An unused slot may have any row, and no gradient flows back from it."""
    slots: torch.Tensor = _Pad.apply(rows, slot_rows, row_slot)  # type: ignore[no-untyped-call]
    return slots


def unpad(slots: torch.Tensor, *, row_slot: torch.Tensor) -> torch.Tensor:
    """Take rows out of slots: [S, ...] -> [T, ...]. `row_slot` is that of `pad`."""
    rows: torch.Tensor = _Unpad.apply(slots, row_slot)  # type: ignore[no-untyped-call]
    return rows


def copy_rows(rows: torch.Tensor, copies: Copies) -> torch.Tensor:
    """[R, ...] -> [C, ...] the copies of the rows. The gradient of a row is the sum over its copies, in the order of
    the rounds."""
    copied: torch.Tensor = _CopyRows.apply(rows, copies)  # type: ignore[no-untyped-call]
    return copied


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, slot_rows: torch.Tensor, row_slot: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(row_slot)
        return rows.index_select(0, slot_rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (row_slot,) = ctx.saved_tensors
        return grad.index_select(0, row_slot), None, None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, slots: torch.Tensor, row_slot: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(row_slot)
        ctx.num_slots = len(slots)
        return slots.index_select(0, row_slot)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (row_slot,) = ctx.saved_tensors
        return grad.new_zeros(ctx.num_slots, *grad.shape[1:]).index_copy_(0, row_slot, grad), None


class _CopyRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, copies: Copies) -> torch.Tensor:
        ctx.num_rows = len(rows)
        ctx.rounds = copies.rounds
        return rows.index_select(0, copies.rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = grad.new_zeros(ctx.num_rows, *grad.shape[1:])
        for rows, places in ctx.rounds:  # no row occurs twice in a round, so the order of the sum is fixed
            total.index_add_(0, rows, grad.index_select(0, places))
        return total, None
