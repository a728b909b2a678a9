"""The two kinds of workers with `cluster.placement: split`: those that train send weights to those that generate."""

from collections import deque
from collections.abc import Iterator
from typing import Final, Literal

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.device import take_device, take_threads
from rl_core.distributed.interface import choose_interface
from rl_core.distributed.place import RankPlace
from rl_core.models.pixels import PixelCache
from rl_core.rollout.generator import Generator
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.training.freed_memory import FREED
from rl_core.types import Requests, Rollout, Sampling
from rl_core.workers.folders import Opening
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.usage import Usage, UsageMeter
from rl_core.workers.weight_link import LinkPlace, WeightLink

Sent = Literal["weights", "adapters"]
"""The policy's weights, without its adapters, if generators get them separately; and these."""

NO_WEIGHTS: Final = -1
"""The version of a generator that has no weights yet."""


class GeneratingWorker:
    """A generator that has a device to itself: it never sleeps, and its weights come over a link."""

    def __init__(self, opening: Opening, place: RankPlace) -> None:
        """Take device and threads. The engine starts at the first `wake`; `place` says on which machine and device."""
        config = opening.config
        take_threads(config.cluster.devices, fixed=config.cluster.threads)
        choose_interface(place)
        self.device = take_device(place.local_rank)
        self._config = config
        self._folders = opening.folders
        self._generator = Generator(self._start_engine)
        self._meter = UsageMeter(self.device, unmapped_bytes=self._generator.unmapped_bytes)
        self._meter.memory.enter("generate")
        self._link: WeightLink | None = None

    @property
    def policy_version(self) -> int:
        """Version of the generator's weights."""
        version = self._generator.policy_version
        return NO_WEIGHTS if version is None else version

    def join_link(self, place: LinkPlace) -> None:
        """Meet the worker that sends the weights, and the others that receive them."""
        self._link = WeightLink(place, self.device)

    def wake(self) -> None:
        """Start the engine, if it does not run yet."""
        FREED.give_back()
        with self._meter.time.at("sync"):
            self._generator.wake()

    def receive(self, what: Sent, policy_version: int) -> None:
        """Load what is being sent, whose version this is."""
        assert self._link is not None, "joined first"
        engine = self._generator.engine
        load = engine.load_weights if what == "weights" else engine.load_adapters
        with self._meter.time.at("sync"):
            load(self._link.receive(), policy_version=policy_version)

    def generate(self, requests: Requests, sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they finish."""
        return self._meter.time.spent_on("generate", self._generator.engine.generate(requests, sampling))

    def usage(self) -> Usage:
        """What this worker has used since the last call."""
        return self._meter.take()

    def close(self) -> None:
        """End the engine."""
        self._generator.close()

    def _start_engine(self) -> VllmEngine:
        images = ImageStore(self._folders.data / IMAGES_FILE)
        pixels = PixelCache(self._folders.model, images)
        return VllmEngine(self._folders.engine_spec(self._config), pixels)


class TrainingWorker(LocalWorker):
    """A LocalWorker whose generator never starts. The first rank sends the weights."""

    _link: WeightLink | None = None

    def join_link(self, place: LinkPlace) -> None:
        """Meet the workers that receive the weights; ranks but the first have nobody to meet."""
        if self.ranks.is_first:
            self._link = WeightLink(place, self.trainer.device)

    def send(self, what: Sent) -> None:
        """Send the policy's weights or adapters, which all ranks gather."""
        weights = self.trainer.named_weights() if what == "weights" else self.trainer.named_adapters()
        with self._meter.time.at("sync"):
            if self._link is None:
                deque(weights, maxlen=0)
            else:
                self._link.send(weights)
