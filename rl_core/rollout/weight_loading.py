"""Loads the trainer's weights into vLLM by their names: an engine that misses one would silently sample from another
policy."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from rl_core.config.model import LoraConfig
from rl_core.families.registry import vision_of
from rl_core.models.loading import load_architecture, model_class
from rl_core.models.named_weights import ADAPTER, Published, plain_name, published
from rl_core.models.trained_part import attach_lora
from rl_core.rollout.copy_recorder import CopyRecorder

if TYPE_CHECKING:
    from vllm import LLMEngine

_NAMES_SHOWN = 5


def expected_weights(model_folder: Path) -> dict[str, Published]:
    """[name in transformers] -> how it is in published files, of the weights of the folder's architecture; a tied
    output head is not listed again. No weights are read."""
    return published(_model(model_folder))


def expected_adapter_names(model_folder: Path, lora: LoraConfig) -> frozenset[str]:
    """The names of the matrices of the adapters that the folder's architecture gets."""
    model = _model(model_folder)
    with torch.device("meta"):
        attach_lora(model, lora, run_seed=0)
    return frozenset(plain_name(name) for name, _ in model.named_parameters() if ADAPTER in name)


def _model(model_folder: Path) -> PreTrainedModel:
    architecture = load_architecture(model_folder)
    factory = model_class(architecture)
    with torch.device("meta"):
        model: PreTrainedModel = factory.from_config(architecture)
    return model


class StrictWeights:
    """Passes weights on and keeps account of their names, which `check` compares with the expected ones afterwards: an
    engine that is left in the middle of a reload cannot be loaded again."""

    def __init__(self, weights: Iterable[tuple[str, torch.Tensor]], *, expected: frozenset[str]) -> None:
        self._weights = weights
        self._expected = expected
        self._seen: set[str] = set()
        self._unknown: list[str] = []
        self._repeated: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in self._weights:
            if name not in self._expected:
                self._unknown.append(name)
            elif name in self._seen:
                self._repeated.append(name)
            else:
                self._seen.add(name)
                yield name, weight

    def check(self) -> None:
        """Raises ValueError with the names of the weights that are missing, unknown, or came twice."""
        problems = {
            "missing": sorted(self._expected - self._seen),
            "unknown": self._unknown,
            "given twice": self._repeated,
        }
        found = [f"{len(names)} {what} ({_shown(names)})" for what, names in problems.items() if names]
        if found:
            raise ValueError(
                f"the weights do not match the generator's model: {'; '.join(found)}. It cannot sample before all "
                f"{len(self._expected)} weights are loaded"
            )


def _shown(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")


class WeightLoader:
    """Loads all weights of the expected names, through vLLM's own loaders, which know all of them as they are in
    published files. The first load is watched: a loader drops a weight without a word where its layer has no place for
    it.

    Attributes:
        layers: [name of a weight] -> the layer of vLLM that took it in the first load; empty before.
    """

    def __init__(self, engine: "LLMEngine", *, expected: Mapping[str, Published]) -> None:
        self._engine = engine
        self._published = expected
        self._expected = frozenset(expected)
        self._is_whole_here = engine.vllm_config.parallel_config.tensor_parallel_size == 1
        self._all_arrive = False
        self.layers: Mapping[str, torch.nn.Module] = {}

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raises ValueError if a weight is missing, unknown or came twice, or vLLM does not take all of its numbers."""
        strict = StrictWeights(weights, expected=self._expected)
        if self._all_arrive:
            self._hand_over(iter(strict))
            self._engine.apply_model(_prepare_kernels)
            strict.check()
            return
        model = self._model()
        with CopyRecorder(model) as recorder:
            self._reload(recorder.watch(strict))
        self._engine.apply_model(_prepare_kernels)
        strict.check()
        self._check_arrival(recorder.arrived_in_part())
        self._all_arrive = True
        self.layers = {
            name: model.get_submodule(copies[0].slot[0]) for name, copies in recorder.copies.items() if copies
        }
        self._learn(recorder)

    def _hand_over(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Load again what was loaded before."""
        self._reload(weights)

    def _learn(self, recorder: CopyRecorder) -> None:
        """Take from a whole load what makes later ones faster."""

    def _check_arrival(self, shares: Mapping[str, float]) -> None:
        """A rank with a part of the model takes a part of each weight."""
        vision = vision_of(self._engine.model_config.hf_config.model_type)
        unused = () if vision is None else vision.unused
        lost = sorted(
            name
            for name, share in shares.items()
            if (self._is_whole_here or share == 0.0) and not any(f".{module}." in name for module in unused)
        )
        if lost:
            raise ValueError(
                f"vLLM takes {_shown(lost)} not at all or in part, {len(lost)} of the model's {len(self._expected)} "
                "weights, and would sample from another policy than the trainer's: look whether the model's "
                "config.json says of its layers what the weights have, such as attention_bias"
            )

    def _model(self) -> torch.nn.Module:
        model: torch.nn.Module
        (model,) = self._engine.apply_model(lambda model: model)
        return model

    def _reload(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        forms = ((self._published[name], weight) for name, weight in weights)
        given = ((form.name, weight.mT if form.is_transposed else weight) for form, weight in forms)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": given})


def _prepare_kernels(model: torch.nn.Module) -> None:
    """vLLM's reload skips an output head that is tied to the embedding, and packs experts at their first load alone. On
    a CPU both multiply with a packed copy of their matrices, which would keep the first weights."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
        elif isinstance(method, UnquantizedFusedMoEMethod):
            experts = method.moe_kernel.fused_experts
            if isinstance(experts, CPUUnquantizedExperts):
                experts.process_weights_after_loading(module)
