"""The generator of one worker: an engine that starts on first use, and sleeps while the trainer works."""

from collections.abc import Callable

from rl_core.rollout.vllm_engine import VllmEngine


class Generator:
    """The engine of one worker. It starts at the first `wake`, because a cold start or a merge does not need it."""

    def __init__(self, start_engine: Callable[[], VllmEngine]) -> None:
        self._start_engine = start_engine
        self._engine: VllmEngine | None = None
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        """Whether the engine has the device's memory."""
        return self._is_awake

    @property
    def engine(self) -> VllmEngine:
        """The awake engine. Raises RuntimeError while it sleeps."""
        if self._engine is None or not self._is_awake:
            raise RuntimeError("the generator is used while it sleeps: call wake first")
        return self._engine

    @property
    def policy_version(self) -> int | None:
        """Version of the engine's weights; None if there are none."""
        return None if self._engine is None else self._engine.policy_version

    def unmapped_bytes(self) -> int:
        """What torch's allocator counts, and the sleeping engine has given back to the GPU."""
        return 0 if self._engine is None else self._engine.unmapped_bytes

    def wake(self) -> None:
        """Take the device's memory."""
        if self._engine is None:
            self._engine = self._start_engine()
        self._engine.wake()
        self._is_awake = True

    def sleep(self) -> None:
        """Give the device's memory to the trainer."""
        if self._engine is not None and self._is_awake:
            self._engine.sleep()
        self._is_awake = False

    def close(self) -> None:
        """End the engine; the next `wake` starts another one."""
        self._is_awake = False
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()
