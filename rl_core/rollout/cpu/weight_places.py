"""Where each weight goes in a model of vLLM on a CPU, so that later loads copy without vLLM's mapping of names.

The places are not derived from names: a recorder watches, copy by copy, what vLLM's own loaders do in one ordinary
load. They are kept only if the copies account for every number of every weight, and if everything that vLLM does to a
layer after its load is known. Otherwise weights go the ordinary way. For a small model copies take less than half of
the time.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn
from typing_extensions import override
from vllm import LLMEngine
from vllm.model_executor.layers.attention import Attention, MMEncoderAttention
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from rl_core.models.named_weights import Published
from rl_core.rollout.copy_recorder import Copy, CopyRecorder, covers_once
from rl_core.rollout.weight_loading import WeightLoader


class CopyingLoader(WeightLoader):
    """Watches the first load of all weights, and copies those of later ones to where it put them.

    Attributes:
        places: Where the weights go; None before the first load, and if they are not certain.
    """

    def __init__(self, engine: LLMEngine, *, expected: Mapping[str, Published]) -> None:
        super().__init__(engine, expected=expected)
        self.places: WeightPlaces | None = None

    @override
    def _hand_over(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        if self.places is None:
            super()._hand_over(weights)
        else:
            self.places.fill(weights)

    @override
    def _learn(self, recorder: CopyRecorder) -> None:
        self.places = WeightPlaces.proven(self._model(), recorder)


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
        taken = all(covers_once([copy.source for copy in copies[name]], shapes[name]) for name in shapes)
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
        return is_dropped and covers_once([copy.target for copy in self._copies if copy.slot[1] == name], shape)


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
