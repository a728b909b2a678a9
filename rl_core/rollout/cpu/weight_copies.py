"""Watches a load of weights: which part of which weight was copied to which part of which parameter."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

Slot = tuple[str, str]
"""The name of a layer in vLLM's model, and of one of its parameters."""


class View(NamedTuple):
    """A part of a contiguous tensor: what `torch.as_strided` takes, with the offset from the tensor's first number."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, part: torch.Tensor, whole: torch.Tensor) -> "View":
        """`part` as a view of `whole`, which has the same storage."""
        offset = part.storage_offset() - whole.storage_offset()
        return cls(tuple(part.shape), part.stride(), int(offset))

    def within(self, whole: torch.Tensor) -> torch.Tensor:
        """This part of a tensor."""
        return whole.as_strided(self.size, self.stride, int(whole.storage_offset()) + self.offset)


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """A copy of a part of a weight into a part of a parameter (`slot`), which has this shape during the load, before a
    kernel repacks it."""

    source: View
    slot: Slot
    shape: tuple[int, ...]
    target: View


class CopyRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every copy of a given weight into a parameter of `model` while it is active."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._weights: dict[int, tuple[str, torch.Tensor]] = {}  # held, so that no other tensor gets their storage
        self.copies: dict[str, list[Copy]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def watch(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass weights on to a loader, and recognise them when it copies them."""
        for name, weight in weights:
            if weight.is_contiguous():
                self._weights[weight.untyped_storage().data_ptr()] = (name, weight)
            self.copies[name], self.shapes[name] = [], tuple(weight.shape)
            yield name, weight

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default and not args[0].is_meta:
            self._note(target=args[0], source=args[1])
        return result

    def _note(self, *, target: torch.Tensor, source: torch.Tensor) -> None:
        known = self._weights.get(source.untyped_storage().data_ptr())
        if known is None or source.shape != target.shape:
            return
        name, weight = known
        for slot, parameter in _slots_of(self._model, target.untyped_storage().data_ptr()):
            shape, part = tuple(parameter.shape), View.of(target, parameter)
            copy = Copy(source=View.of(source, weight), slot=slot, shape=shape, target=part)
            if copy not in self.copies[name]:  # vLLM copies a bias once more to count its numbers
                self.copies[name].append(copy)


def _slots_of(model: nn.Module, storage: int) -> Iterator[tuple[Slot, nn.Parameter]]:
    """The first parameter of the model with this storage, if there is one; a tied head shares the embedding's."""
    for layer_name, layer in model.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if not parameter.is_meta and parameter.untyped_storage().data_ptr() == storage:
                yield (layer_name, name), parameter
                return
