"""The generator of one worker: an engine that starts on first use, and sleeps while the trainer works."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rl_core.distributed.generator_ranks import WHOLE, GeneratorRanks
from rl_core.models.pixels import PixelCache
from rl_core.rollout.protocol import EngineSpec, RolloutEngine
from rl_core.types import GenerationRequest, Rollout, Sampling

if TYPE_CHECKING:
    import torch


def start_engine(spec: EngineSpec, pixels: PixelCache, *, ranks: GeneratorRanks = WHOLE) -> RolloutEngine:
    """An engine that waits for its first weights. All ranks of a generator start it together."""
    # Imported here because importing vLLM takes seconds, and a cold start or a merge does not need it.
    from rl_core.rollout.vllm_engine import VllmEngine

    return VllmEngine(spec, pixels, ranks=ranks)


class Generator:
    """Samples responses with the weights that were last loaded.

    The engine starts at the first `wake`, because a cold start or a merge does not need it. From `wake` to `sleep` it
    has the device's memory.
    """

    def __init__(self, start_engine: Callable[[], RolloutEngine]) -> None:
        """Keep the function that starts the engine."""
        self._start_engine = start_engine
        self._engine: RolloutEngine | None = None
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        """Whether the engine has the device's memory."""
        return self._is_awake

    @property
    def policy_version(self) -> int | None:
        """Version of the engine's weights. None if it has none: before the first load, and on a GPU after each `sleep`,
        which drops them."""
        return None if self._engine is None else self._engine.policy_version

    @property
    def has_weights(self) -> bool:
        """Whether the engine has weights, to which adapters can be loaded."""
        return self._engine is not None and self._engine.has_weights

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values the engine's cache holds at one time. Raises RuntimeError if the generator
        sleeps."""
        return self._working_engine().cached_tokens

    def unmapped_bytes(self) -> int:
        """What torch's allocator counts, and the sleeping engine has given back to the GPU."""
        return 0 if self._engine is None else self._engine.unmapped_bytes()

    def wake(self) -> None:
        """Take the device's memory. The first call starts the engine."""
        if self._engine is None:
            self._engine = self._start_engine()
        self._engine.wake()
        self._is_awake = True

    def sleep(self) -> None:
        """Give the device's memory to the trainer. Does nothing if the generator already sleeps."""
        if self._engine is not None and self._is_awake:
            self._engine.sleep()
        self._is_awake = False

    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """Load every weight of the model by its Hugging Face name.

        Raises:
            ValueError: a weight is missing or unknown.
            RuntimeError: the generator sleeps.
        """
        self._working_engine().load_weights(weights, policy_version=policy_version)

    def load_adapters(self, adapters: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        """Load the adapters of the model, beside the weights that it has. Raises as `load_weights`."""
        self._working_engine().load_adapters(adapters, policy_version=policy_version)

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout for each request, as they finish. Raises RuntimeError if the generator sleeps."""
        return self._working_engine().generate(requests, sampling)

    def close(self) -> None:
        """End the engine; the next `wake` starts another one."""
        self._is_awake = False
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def _working_engine(self) -> RolloutEngine:
        if self._engine is None or not self._is_awake:
            raise RuntimeError("the generator is used while it sleeps: call wake first")
        return self._engine
