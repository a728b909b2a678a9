"""The generator of one worker: a rollout engine that starts at its first use, and rests while the trainer works."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rl_core.rollout.protocol import RolloutEngine
from rl_core.types import GenerationRequest, Rollout, Sampling

if TYPE_CHECKING:
    import torch


class Generator:
    """Draws responses with the weights that it was last given.

    The engine starts at the first `wake`, because a cold start or a merge needs none. From `wake` to `rest` it has the
    memory of the device.
    """

    def __init__(self, start_engine: Callable[[], RolloutEngine]) -> None:
        """Keep how the engine is started."""
        self._start_engine = start_engine
        self._engine: RolloutEngine | None = None
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        """Whether the engine has the memory of the device."""
        return self._is_awake

    @property
    def policy_version(self) -> int | None:
        """Version of the weights that the engine holds; None where it holds none: before the first ones, and on a GPU
        after each rest, which drops them."""
        return None if self._engine is None else self._engine.policy_version

    def wake(self) -> None:
        """Take the memory of the device; the first time, start the engine."""
        if self._engine is None:
            self._engine = self._start_engine()
        self._engine.wake()
        self._is_awake = True

    def rest(self) -> None:
        """Give the memory of the device to the trainer; nothing to do for a generator that rests already."""
        if self._engine is not None and self._is_awake:
            self._engine.sleep()
        self._is_awake = False

    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """Take every weight of the model under its Hugging Face name. Raises ValueError where one is missing or
        unknown, and RuntimeError where the generator rests."""
        self._working_engine().load_weights(weights, policy_version=policy_version)

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout a request, as they finish. Raises RuntimeError where the generator rests."""
        return self._working_engine().generate(requests, sampling)

    def close(self) -> None:
        """End the engine; the next `wake` starts another one."""
        self._is_awake = False
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def _working_engine(self) -> RolloutEngine:
        if self._engine is None or not self._is_awake:
            raise RuntimeError("the generator is used while it rests: call wake first")
        return self._engine
