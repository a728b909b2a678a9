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
    """The engine of a generator. vLLM is one."""

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
        """Load every weight of the model by its name in `named_hf_weights`, and drop all caches computed with older
        ones.

        Raises:
            ValueError: one is missing, unknown or came twice; the engine does not generate before a complete load.
            RuntimeError: requests are still running.
        """

    def load_adapters(self, adapters: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """The same for the adapters, by their names in `named_adapters`. Raises RuntimeError without weights, too."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout for each request, in the order in which they finish. Leaving early aborts the others.

        Log-probs belong to the distribution that is sampled from. Vision and padding tokens are never sampled. Tokens
        and log-probs depend on the weights and on each request's prompt, seed and sampling, and not on other requests,
        their order or earlier calls (on a CPU to the bit).

        Raises:
            RuntimeError: there are no weights, or an earlier generation was neither finished nor closed.
            ValueError: `sampling.max_tokens` exceeds `rollout.max_response_length`, or a prompt cannot be rendered.
        """

    def sleep(self) -> None:
        """Give the device's memory to the trainer."""

    def wake(self) -> None:
        """Take the device's memory back."""

    def unmapped_bytes(self) -> int:
        """What torch's allocator counts, and the sleeping engine has given back to the GPU."""

    def close(self) -> None:
        """End the engine and its process groups."""
