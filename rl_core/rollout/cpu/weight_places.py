"""Where each weight goes in a model of vLLM on a CPU, so that later loads copy without vLLM's mapping of names.

The places are not derived from names: a recorder watches, copy by copy, what vLLM's own loaders do in one ordinary
load. They are kept only if the copies account for every number of every weight, and if everything that vLLM does to a
layer after its load is known. Otherwise weights go the ordinary way. For a small model copies take less than half of
the time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override
from vllm import LLMEngine
from vllm.model_executor.layers.attention import Attention, MMEncoderAttention
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from rl_core.rollout.weight_loading import StrictWeights, WeightLoader

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

    @property
    def is_expanded(self) -> bool:
        """Whether it has numbers of the tensor several times."""
        return any(size > 1 and stride == 0 for size, stride in zip(self.size, self.stride, strict=True))

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


class CopyingLoader(WeightLoader):
    """Watches the first load of all weights, and copies those of later ones to where it put them.

    Attributes:
        places: Where the weights go; None before the first load, and if they are not certain.
    """

    def __init__(self, engine: LLMEngine, *, expected: frozenset[str]) -> None:
        super().__init__(engine, expected=expected)
        self.places: WeightPlaces | None = None

    @override
    def _hand_over(self, weights: StrictWeights) -> None:
        if self.places is None:
            self.places = self._watched(weights)
        else:
            self.places.fill(weights)

    def _watched(self, weights: StrictWeights) -> "WeightPlaces | None":
        """Load the ordinary way, and return where the weights went; None if not all have come."""
        (model,) = self._engine.apply_model(lambda model: model)
        with CopyRecorder(model) as recorder:
            self._reload(recorder.watch(weights))
        return WeightPlaces.proven(model, recorder) if weights.are_complete else None


class WeightPlaces:
    """The places of every weight of a model in vLLM, which `fill` copies new weights into."""

    def __init__(self, model: nn.Module, *, copies: dict[str, list[Copy]], shapes: dict[str, tuple[int, ...]]) -> None:
        self._copies = copies
        self._shapes = shapes
        self._layers = {name: _Layer(model.get_submodule(name)) for name in {c.slot[0] for c in _all(copies)}}
        for copy in _all(copies):
            self._layers[copy.slot[0]].expect(copy)

    @classmethod
    def proven(cls, model: nn.Module, recorder: CopyRecorder) -> "WeightPlaces | None":
        """The places of the weights in a load that the recorder has watched. None if the load did something that copies
        alone would not repeat: a weight was converted or taken only in part, a parameter was filled from elsewhere too,
        or a layer is repacked in a way that is not known here."""
        copies, shapes = recorder.copies, recorder.shapes
        taken = all(_covers_once([copy.source for copy in copies[name]], shapes[name]) for name in shapes)
        if not taken or not all(map(_is_known, model.modules())):
            return None
        places = cls(model, copies=copies, shapes=shapes)
        return places if all(layer.can_be_filled for layer in places._layers.values()) else None

    @torch.no_grad()
    def fill(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy each weight into its places. A layer is repacked for its kernel as soon as all its numbers have come;
        one of which a weight is missing keeps its old kernel. Raises ValueError if a weight has another shape than in
        the load that was watched."""
        for layer in self._layers.values():
            layer.start()
        for name, weight in weights:
            if tuple(weight.shape) != self._shapes[name]:
                raise ValueError(f"{name} has the shape {tuple(weight.shape)}, but it was {self._shapes[name]} before")
            whole = weight.contiguous()
            for copy in self._copies[name]:
                self._layers[copy.slot[0]].take(copy, copy.source.within(whole))


class _Layer:
    """A layer of vLLM's model, and how far it is filled.

    vLLM gives some layers a matrix only to pack it for a kernel, and then drops it: the parameter has no numbers left.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._packs = getattr(module, "quant_method", None) is not None
        self._copies: list[Copy] = []
        self._missing = 0
        self._temporary: dict[str, torch.Tensor] = {}

    def expect(self, copy: Copy) -> None:
        self._copies.append(copy)

    @property
    def can_be_filled(self) -> bool:
        """Whether every parameter that copies go to either kept its shape, or is dropped after packing and made of
        copies alone."""
        shapes = {copy.slot[1]: copy.shape for copy in self._copies}
        return all(self._kept(name, shape) or self._is_whole(name, shape) for name, shape in shapes.items())

    def start(self) -> None:
        self._missing = len(self._copies)
        self._temporary.clear()

    def take(self, copy: Copy, numbers: torch.Tensor) -> None:
        name = copy.slot[1]
        parameter = getattr(self._module, name)
        if not self._kept(name, copy.shape):
            parameter = self._temporary.setdefault(name, torch.empty(copy.shape, dtype=parameter.dtype))
        copy.target.within(parameter).copy_(numbers)
        self._missing -= 1
        if self._missing == 0 and self._packs:
            self._pack()

    def _pack(self) -> None:
        """Pack the layer's new matrices. The parameters themselves stay the same objects, with vLLM's attributes."""
        kept = {name: getattr(self._module, name) for name in self._temporary}
        for name, numbers in self._temporary.items():
            setattr(self._module, name, nn.Parameter(numbers, requires_grad=False))
        self._module.quant_method.process_weights_after_loading(self._module)  # type: ignore[union-attr, operator]
        for name, parameter in kept.items():
            setattr(self._module, name, parameter)
        self._temporary.clear()

    def _kept(self, name: str, shape: tuple[int, ...]) -> bool:
        parameter = getattr(self._module, name)
        return tuple(parameter.shape) == shape and bool(parameter.is_contiguous())

    def _is_whole(self, name: str, shape: tuple[int, ...]) -> bool:
        is_dropped = self._packs and getattr(self._module, name).numel() == 0
        return is_dropped and _covers_once([copy.target for copy in self._copies if copy.slot[1] == name], shape)


def _covers_once(parts: Sequence[View], shape: tuple[int, ...]) -> bool:
    """Whether the parts of a tensor of this shape have each of its numbers, and none of them twice."""
    if any(part.is_expanded for part in parts):
        return False
    is_covered = torch.zeros(shape, dtype=torch.bool)
    for part in parts:
        part.within(is_covered).fill_(True)
    return sum(prod(part.size) for part in parts) == is_covered.numel() and bool(is_covered.all())


def _all(copies: dict[str, list[Copy]]) -> Iterator[Copy]:
    for own in copies.values():
        yield from own


def _is_known(layer: nn.Module) -> bool:
    """Whether vLLM does nothing to this layer after its load, or only packs it. Attention with latent keys, say, takes
    matrices of another layer."""
    method = getattr(layer, "quant_method", None)
    if method is not None and type(method) not in (UnquantizedLinearMethod, UnquantizedEmbeddingMethod):
        return False
    return not hasattr(layer, "process_weights_after_loading") or isinstance(layer, (Attention, MMEncoderAttention))
