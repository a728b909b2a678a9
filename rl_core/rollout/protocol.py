"""The interface of an engine, and what an engine is made of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rl_core.config.model import LoraConfig
from rl_core.config.training import RolloutConfig
from rl_core.types import GenerationRequest, Rollout, Sampling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What an engine is made of.

    Attributes:
        model: Hugging Face folder with config, tokenizer and processor; its weights are read once.
        rollout: The section `rollout` of the config.
        dtype: Number format of the engine's weights.
        max_prompt_length: Most tokens of a prompt, images expanded.
        images_per_prompt: Most images of a prompt.
        videos_per_prompt: Most videos of a prompt.
        seed: Seed of the engine's global random generator, which no request uses.
        lora: The adapters that it gets beside its weights; None if it gets merged weights.
    """

    model: Path
    rollout: RolloutConfig
    dtype: str
    max_prompt_length: int
    images_per_prompt: int
    videos_per_prompt: int = 0
    seed: int
    lora: LoraConfig | None = None


class RolloutEngine(Protocol):
    """The engine of a generator. vLLM is one; tests compare it with a slow one made of transformers."""

    @property
    def policy_version(self) -> int | None:
        """Version of the weights; None if there are none."""

    @property
    def has_weights(self) -> bool:
        """Whether weights are loaded. With `model.lora.generator_weights: separate`, these are the frozen weights, and
        there is a version only when adapters are loaded, too."""

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values its cache holds at one time."""

    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """Load every weight of the model by its Hugging Face name, drop all caches computed with older weights, and
        keep `policy_version`. Raises ValueError if a name is missing or unknown."""

    def load_adapters(self, adapters: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """The same for the adapters, beside weights that are loaded. Raises RuntimeError if there are none."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout for each request, in the order in which they finish. Log-probs belong to the distribution
        that is sampled from. Vision and padding tokens are never sampled. Raises RuntimeError before the first load."""

    def sleep(self) -> None:
        """Give the device's memory to the trainer."""

    def wake(self) -> None:
        """Take the device's memory back."""

    def unmapped_bytes(self) -> int:
        """What torch's allocator counts, and the sleeping engine has given back to the GPU."""

    def close(self) -> None:
        """End the engine and its process groups."""
