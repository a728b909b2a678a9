"""What the engine must do: draw responses, take weights, sleep."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from rl_core.types import GenerationRequest, Rollout, Sampling

if TYPE_CHECKING:
    import torch


class RolloutEngine(Protocol):
    """A generation engine on one worker. vLLM is one; the tests compare it with a slow one of transformers."""

    @property
    def policy_version(self) -> int | None:
        """Version of the weights last loaded; None before the first load."""

    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """Take every weight of the model under its Hugging Face name, drop every cache made with older ones, and
        remember `policy_version`. Strict: a missing or unknown name raises ValueError."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout a request, in the order in which they finish. Log-probs are those of the distribution
        sampled from. Vision and padding tokens are never sampled. Raises RuntimeError before the first load."""

    def sleep(self) -> None:
        """Give the device's memory to the trainer."""

    def wake(self) -> None:
        """Take it back."""

    def close(self) -> None:
        """End the engine and its process groups."""
