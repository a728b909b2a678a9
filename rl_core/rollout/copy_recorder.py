"""Watches what vLLM's own loaders do with weights, copy by copy. Where a weight goes is not derived from names."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

Slot = tuple[str, str]
"""The name of a layer in vLLM's model, and of one of its parameters or buffers."""


class View(NamedTuple):
    """A part of a contiguous tensor: what `torch.as_strided` takes, with the offset from the tensor's first number."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, part: torch.Tensor, whole: torch.Tensor) -> "View":
        """`part` as a view of `whole`, which has the same storage."""
        return cls(tuple(part.shape), part.stride(), int(part.storage_offset() - whole.storage_offset()))

    @property
    def is_expanded(self) -> bool:
        """Whether it has numbers of the tensor several times."""
        return any(size > 1 and stride == 0 for size, stride in zip(self.size, self.stride, strict=True))

    def once(self) -> "View":
        """The same numbers, each of them once."""
        sizes = [1 if stride == 0 else size for size, stride in zip(self.size, self.stride, strict=True)]
        return self._replace(size=tuple(sizes))

    def within(self, whole: torch.Tensor) -> torch.Tensor:
        """This part of a tensor."""
        return whole.as_strided(self.size, self.stride, int(whole.storage_offset()) + self.offset)


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """A copy of a part of a weight into a part of a tensor of the model (`slot`), which has this shape during the load,
    before a kernel repacks it."""

    source: View
    slot: Slot
    shape: tuple[int, ...]
    target: View


class _Known(NamedTuple):
    """A tensor that is a weight, or was computed from it (no `offset`: where the weight begins in its storage). Its
    memory may be freed, and be another tensor's then."""

    name: str
    offset: int | None
    storage: StorageWeakRef


class CopyRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every copy of a given weight into a parameter or buffer of `model` while it is active.

    Attributes:
        copies: [name of a weight] -> its copies.
        shapes: [name of a weight] -> its shape.
        converted: Names of the weights of which something was computed, such as a transposed or negated weight, that
            was copied into the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._known: dict[int, _Known] = {}
        self._slots: dict[int, Slot] = {}
        self.copies: dict[str, list[Copy]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.converted: set[str] = set()

    def watch(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass weights on to a loader, and recognise them when it copies them."""
        for name, weight in weights:
            self._remember(weight, name, offset=int(weight.storage_offset()) if weight.is_contiguous() else None)
            self.copies[name], self.shapes[name] = [], tuple(weight.shape)
            yield name, weight

    def arrived_in_part(self) -> dict[str, float]:
        """[name] -> share of its numbers that came into the model, of the weights of which not all did. A weight of
        which something was computed counts as whole."""
        shares = {
            name: _covered([copy.source for copy in self.copies[name]], shape)
            for name, shape in self.shapes.items()
            if name not in self.converted
        }
        return {name: share for name, share in shares.items() if share < 1.0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            if not args[0].is_meta:
                self._note(target=args[0], source=args[1])
        elif isinstance(result, torch.Tensor) and not result.is_meta:
            self._note_computed(result, args)
        return result

    def _note(self, *, target: torch.Tensor, source: torch.Tensor) -> None:
        known = self._known_as(source)
        if known is None or not _place(target):
            return
        slot = self._slot_at(_place(target))
        if slot is None:
            self._remember(target, known.name)  # it may come into the model from there
        elif known.offset is None or source.shape != target.shape:
            self.converted.add(known.name)
        else:
            parameter = self._tensor(slot)
            part = View(tuple(source.shape), source.stride(), int(source.storage_offset()) - known.offset)
            copy = Copy(source=part, slot=slot, shape=tuple(parameter.shape), target=View.of(target, parameter))
            if copy not in self.copies[known.name]:  # vLLM copies a bias once more to count its numbers
                self.copies[known.name].append(copy)

    def _note_computed(self, result: torch.Tensor, args: Sequence[Any]) -> None:
        for tensor in _tensors(args):
            if _place(tensor) != _place(result) and (known := self._known_as(tensor)) is not None:
                self._remember(result, known.name)

    def _remember(self, tensor: torch.Tensor, name: str, *, offset: int | None = None) -> None:
        if not _place(tensor):
            return
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._known[_place(tensor)] = _Known(name, offset, storage)

    def _known_as(self, tensor: torch.Tensor) -> _Known | None:
        known = self._known.get(_place(tensor))
        return None if known is None or known.storage.expired() else known  # type: ignore[no-untyped-call]

    def _slot_at(self, place: int) -> Slot | None:
        """The first parameter or buffer of the model at this place; a tied head shares the embedding's. vLLM gives a
        layer new ones while it loads."""
        if place not in self._slots or _place(self._tensor(self._slots[place])) != place:
            self._slots = {}
            for layer_name, layer in self._model.named_modules():
                for name, tensor in _own_tensors(layer):
                    self._slots.setdefault(_place(tensor), (layer_name, name))
        return self._slots.get(place)

    def _tensor(self, slot: Slot) -> torch.Tensor:
        tensor: torch.Tensor = getattr(self._model.get_submodule(slot[0]), slot[1])
        return tensor


def covers_once(parts: Sequence[View], shape: tuple[int, ...]) -> bool:
    """Whether the parts of a tensor of this shape have each of its numbers, and none of them twice."""
    return sum(prod(part.size) for part in parts) == prod(shape) and _covered(parts, shape) == 1.0


def _covered(parts: Sequence[View], shape: tuple[int, ...]) -> float:
    """The share of the numbers of a tensor of this shape that its parts have."""
    if any(part.size == shape and not part.is_expanded for part in parts):
        return 1.0
    is_covered = torch.zeros(shape, dtype=torch.bool)
    for part in parts:
        part.once().within(is_covered).fill_(True)
    return int(is_covered.sum()) / prod(shape)


def _place(tensor: torch.Tensor) -> int:
    """Address of its numbers; 0 where it has none of its own, as the sharded weights that the trainer gathers."""
    has_none = tensor.is_meta or hasattr(tensor, "__tensor_flatten__")
    return 0 if has_none else tensor.untyped_storage().data_ptr()


def _own_tensors(layer: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from layer.named_parameters(recurse=False)
    yield from layer.named_buffers(recurse=False)


def _tensors(args: Sequence[Any]) -> Iterator[torch.Tensor]:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _tensors(arg)
