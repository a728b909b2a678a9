"""Loads the trainer's weights into vLLM."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch

from rl_core.rollout.weight_copies import CopyRecorder
from rl_core.rollout.weight_names import StrictWeights
from rl_core.rollout.weight_places import WeightPlaces

if TYPE_CHECKING:
    from vllm import LLMEngine


class WeightLoader:
    """Loads weights by their Hugging Face names.

    The first load goes through vLLM's loaders. On a CPU it is watched, and later loads copy each weight directly to
    where the first one put it, which for a small model takes less than half of the time. An engine with a part of the
    model, where what is left out of a weight could also be a mistake, or with adapters, whose weights hardly ever
    change, takes the ordinary way each time.

    Attributes:
        places: Where the weights go; None if no load has told it, or if it is not certain.
    """

    def __init__(self, engine: "LLMEngine", *, expected: frozenset[str], is_plain: bool = True) -> None:
        """Load into this engine, each time all weights of these names; `is_plain` if it has the whole model, and no
        adapters."""
        self._engine = engine
        self._is_plain = is_plain
        self._expected = expected
        self.places: WeightPlaces | None = None

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Load every weight.

        Raises:
            ValueError: a weight is missing, unknown or came twice.
        """
        from vllm.platforms import current_platform

        strict = StrictWeights(weights, expected=self._expected)
        if self.places is not None:
            self.places.fill(strict)
        elif current_platform.is_cpu() and self._is_plain:
            self.places = self._watched(strict)
        else:
            self._reload(iter(strict))
        self._engine.apply_model(_refresh_output_heads)
        strict.check()

    def _watched(self, weights: StrictWeights) -> WeightPlaces | None:
        """Load the ordinary way, and return where the weights went; None if not all have come."""
        (model,) = self._engine.apply_model(_itself)
        with CopyRecorder(model) as recorder:
            self._reload(recorder.watch(weights))
        return WeightPlaces.proven(model, recorder) if weights.are_complete else None

    def _reload(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})


def _itself(model: torch.nn.Module) -> torch.nn.Module:
    return model


def _refresh_output_heads(model: torch.nn.Module) -> None:
    """Update output heads that are tied to the embedding.

    vLLM's reload skips a tied head, because it shares the embedding's storage. On a CPU that is not enough: the head
    multiplies with a packed copy of the matrix, which would keep the first weights.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
