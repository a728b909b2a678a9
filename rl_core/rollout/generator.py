"""The generator of one worker: an engine that starts on first use, and sleeps while the trainer works."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from rl_core.distributed.ranks import WHOLE, GeneratorRanks
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


class Generator(RolloutEngine):
    """The engine of one worker. It starts at the first `wake`, because a cold start or a merge does not need it. While
    it sleeps, loading and generating raise RuntimeError."""

    def __init__(self, start_engine: Callable[[], RolloutEngine]) -> None:
        self._start_engine = start_engine
        self._engine: RolloutEngine | None = None
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        """Whether the engine has the device's memory."""
        return self._is_awake

    @property
    @override
    def policy_version(self) -> int | None:
        return None if self._engine is None else self._engine.policy_version

    @property
    @override
    def has_weights(self) -> bool:
        return self._engine is not None and self._engine.has_weights

    @property
    @override
    def cached_tokens(self) -> int:
        return self._working_engine().cached_tokens

    @override
    def unmapped_bytes(self) -> int:
        return 0 if self._engine is None else self._engine.unmapped_bytes()

    @override
    def wake(self) -> None:
        if self._engine is None:
            self._engine = self._start_engine()
        self._engine.wake()
        self._is_awake = True

    @override
    def sleep(self) -> None:
        if self._engine is not None and self._is_awake:
            self._engine.sleep()
        self._is_awake = False

    @override
    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        self._working_engine().load_weights(weights, policy_version=policy_version)

    @override
    def load_adapters(self, adapters: "Iterable[tuple[str, torch.Tensor]]", *, policy_version: int) -> None:
        self._working_engine().load_adapters(adapters, policy_version=policy_version)

    @override
    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        return self._working_engine().generate(requests, sampling)

    @override
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
