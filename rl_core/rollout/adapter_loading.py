"""Gives vLLM the adapters of a policy, which it adds to the frozen weights."""

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file

from rl_core.config.model import LoraConfig
from rl_core.models.named_weights import ADAPTER
from rl_core.planning.rules import VLLM_RANKS
from rl_core.rollout.weight_loading import StrictWeights

if TYPE_CHECKING:
    from vllm import LLMEngine
    from vllm.lora.request import LoRARequest

_NUMBER: Final = 1
"""vLLM's number of the only adapter."""


def adapter_arguments(lora: LoraConfig, expected: Iterable[str]) -> dict[str, Any]:
    """vLLM's arguments for one adapter, which every request uses, with matrices of the `expected` names. vLLM prepares
    their layers alone for it: among all would be experts, each of which would get memory for an adapter that never
    comes, and which it computes with adapters on a GPU only."""
    return {
        "lora_target_modules": _layers(expected),
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(rank for rank in VLLM_RANKS if rank >= lora.rank),
    }


class AdapterLoader:
    """Loads adapters into vLLM, each time all of the expected names. vLLM takes them from a folder in peft's format,
    which is there only while vLLM reads it. `request` is what a request names to be computed with them."""

    def __init__(self, engine: "LLMEngine", lora: LoraConfig, *, expected: frozenset[str]) -> None:
        self._engine = engine
        self._lora = lora
        self._expected = expected
        self.request: LoRARequest | None = None

    def load(self, adapters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the adapters. Raises ValueError if one is missing, unknown or came twice."""
        from vllm.lora.request import LoRARequest

        strict = StrictWeights(adapters, expected=self._expected)
        matrices = {f"base_model.model.{name}": matrix.cpu().contiguous() for name, matrix in strict}
        strict.check()
        with TemporaryDirectory(prefix="sightline-adapters-") as folder:
            save_file(matrices, Path(folder, "adapter_model.safetensors"))
            Path(folder, "adapter_config.json").write_text(json.dumps(self._peft_config(matrices)))
            # An object of its own: a request with `load_inplace` would load the folder again in each engine step.
            self._engine.add_lora(LoRARequest("policy", _NUMBER, folder, load_inplace=True))
            self.request = LoRARequest("policy", _NUMBER, folder)

    def _peft_config(self, matrices: Iterable[str]) -> dict[str, Any]:
        return {
            "peft_type": "LORA",
            "r": self._lora.rank,
            "lora_alpha": self._lora.alpha,
            "target_modules": _layers(matrices),
        }


def _layers(matrices: Iterable[str]) -> list[str]:
    """The last parts of the names of the layers that have these."""
    return sorted({name.rpartition(ADAPTER)[0].rpartition(".")[2] for name in matrices})
