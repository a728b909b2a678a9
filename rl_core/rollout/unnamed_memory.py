"""The memory that a sleeping vLLM drops and nobody writes again: tensors that have no name in the model.

vLLM's sleep of level 2 drops everything that was made while the model was loaded, and restores the model's buffers. The
weights come with the next sync. Other tensors hold whatever was in the memory before: the positions of padded rows,
which point into the table of rotary embeddings, or what Qwen3-VL adds to the first layers of every text token.
"""

import gc
from bisect import bisect_right
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensor

if TYPE_CHECKING:
    from vllm.device_allocator import AllocationData

# From these one would reach everything in the process.
_NOT_FOLLOWED = (type, ModuleType, FunctionType, BuiltinFunctionType)


class UnnamedMemory:
    """Memory that survives a sleep on the host: pieces of [bytes] uint8, a few hundred MiB at most."""

    def __init__(self, pieces: list[torch.Tensor]) -> None:
        self.pieces = pieces
        self._saved: list[torch.Tensor] = []

    def save(self) -> None:
        """Copy it to the host."""
        self._saved = [piece.to("cpu", copy=True) for piece in self.pieces]

    def restore(self) -> None:
        """Copy it back."""
        for piece, saved in zip(self.pieces, self._saved, strict=True):
            piece.copy_(saved)
        self._saved = []


def unnamed_memory(worker: Any) -> UnnamedMemory:
    """What a worker of vLLM whose engine can sleep forgets in it, apart from its weights and its cache."""
    from vllm.device_allocator import get_mem_allocator_instance

    is_dropped = is_with_weights(get_mem_allocator_instance().pointer_to_data)
    return UnnamedMemory(unnamed_pieces(worker.model_runner, is_dropped))


def unmapped_bytes() -> int:
    """Bytes of tensors that torch's allocator counts, and vLLM's sleeping allocator has given back to the GPU."""
    from vllm.device_allocator import get_mem_allocator_instance

    allocations = get_mem_allocator_instance().pointer_to_data
    segments = torch.cuda.memory_snapshot(include_traces=False)  # type: ignore[no-untyped-call]
    unmapped = {address for address, data in allocations.items() if data.is_asleep}
    return sum(segment["allocated_size"] for segment in segments if segment["address"] in unmapped)


def is_with_weights(allocations: "Mapping[int, AllocationData]") -> Callable[[int], bool]:
    """Whether the memory at an address was made while the model was loaded."""
    ranges = sorted((start, start + data.handle[1]) for start, data in allocations.items() if data.tag == "weights")

    def is_within(address: int) -> bool:
        place = bisect_right(ranges, (address, float("inf")))
        return place > 0 and address < ranges[place - 1][1]

    return is_within


def unnamed_pieces(runner: Any, is_dropped: Callable[[int], bool]) -> list[torch.Tensor]:
    """The memory of all tensors of a model runner but parameters and buffers of its model, as far as it is dropped."""
    named = {_address(tensor) for tensor in (*runner.model.parameters(), *runner.model.buffers())}
    found = {_address(tensor): tensor for tensor in _tensors(runner)}
    return [
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        for address, tensor in found.items()
        if address not in named and is_dropped(address)
    ]


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(root: object) -> list[torch.Tensor]:
    """All tensors with numbers to which an object leads. A compiled model has some without, which describe others."""
    reached: dict[int, object] = {}
    ahead = [root]
    while ahead:
        found = ahead.pop()
        if id(found) not in reached and not isinstance(found, _NOT_FOLLOWED):
            reached[id(found)] = found
            ahead += gc.get_referents(found)
    return [
        found
        for found in reached.values()
        if isinstance(found, torch.Tensor) and not isinstance(found, FakeTensor) and not found.is_meta
    ]
