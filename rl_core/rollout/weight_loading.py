"""Loads the trainer's weights into vLLM by their names: an engine that misses one would silently sample from another
policy."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from rl_core.config.model import LoraConfig
from rl_core.models.loading import load_architecture, model_class
from rl_core.models.named_weights import ADAPTER, plain_name
from rl_core.models.trained_part import attach_lora

if TYPE_CHECKING:
    from vllm import LLMEngine

_NAMES_SHOWN = 5


def expected_weight_names(model_folder: Path) -> frozenset[str]:
    """The names of the weights of the folder's architecture in transformers; a tied output head is not listed again. No
    weights are read."""
    return frozenset(name for name, _ in _model(model_folder).named_parameters())


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

    @property
    def are_complete(self) -> bool:
        """Whether every expected weight has come once, and no other."""
        return self._seen == self._expected and not self._unknown and not self._repeated

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
    """Loads all weights of the expected names, through vLLM's own loaders."""

    def __init__(self, engine: "LLMEngine", *, expected: frozenset[str]) -> None:
        self._engine = engine
        self._expected = expected

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raises ValueError if a weight is missing, unknown or came twice."""
        strict = StrictWeights(weights, expected=self._expected)
        self._hand_over(strict)
        self._engine.apply_model(_refresh_output_heads)
        strict.check()

    def _hand_over(self, weights: StrictWeights) -> None:
        self._reload(iter(weights))

    def _reload(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})


def _refresh_output_heads(model: torch.nn.Module) -> None:
    """vLLM's reload skips an output head that is tied to the embedding. On a CPU the head multiplies with a packed copy
    of the matrix, which would keep the first weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
