"""A worker that only generates, with weights that other workers train."""

import socket
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import torch

from rl_core.config.run import RunConfig
from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.device import device_name
from rl_core.distributed.interface import choose_interface
from rl_core.distributed.place import RankPlace
from rl_core.models.loading import load_processor
from rl_core.models.pixels import PixelCache
from rl_core.rollout.generator import Generator
from rl_core.rollout.protocol import RolloutEngine
from rl_core.rollout.starting import start_engine
from rl_core.types import GenerationRequest, Rollout, Sampling
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.peak_memory import PeakMemory
from rl_core.workers.usage import Usage, WorkerUsage
from rl_core.workers.weight_link import LinkPlace, WeightLink
from rl_core.workers.working_time import WorkingTime

NO_WEIGHTS: Final = -1
"""The version of a generator that has no weights yet."""


class GeneratingWorker:
    """A generator that has a device to itself: it never sleeps, and its weights come over a link."""

    def __init__(self, config: RunConfig, folders: WorkerFolders, place: RankPlace) -> None:
        """Open the images. The engine starts at the first `wake`; `place` says on which machine and device."""
        choose_interface(place)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(place.rank % place.ranks_a_node % torch.cuda.device_count())
        self._config = config
        self._folders = folders
        self._generator = Generator(self._start_engine)
        self._memory = PeakMemory(self.device)
        self._memory.enter("generate")
        self._time = WorkingTime()
        self._link: WeightLink | None = None

    @cached_property
    def _pixels(self) -> PixelCache:
        return PixelCache(load_processor(self._folders.model), ImageStore.open(self._folders.data / IMAGES_FILE))

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
        with self._time.at("sync"):
            self._generator.wake()

    def receive_weights(self, policy_version: int) -> None:
        """Load the weights that are being sent, whose version this is."""
        assert self._link is not None, "joined first"
        with self._time.at("sync"):
            self._generator.load_weights(self._link.receive(), policy_version=policy_version)

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they finish."""
        return self._time.spent_on("generate", self._generator.generate(requests, sampling))

    def usage(self) -> Usage:
        """What this worker has used since the last call."""
        worker = WorkerUsage(
            host=socket.gethostname(),
            device=device_name(self.device),
            seconds=self._time.take(),
            spans=self._time.take_spans(),
            peaks=self._memory.take(),
        )
        return Usage(workers=[worker])

    def close(self) -> None:
        """End the engine."""
        self._generator.close()

    def _start_engine(self) -> RolloutEngine:
        config, folders = self._config, self._folders
        return start_engine(
            folders.model,
            config=config.rollout,
            dtype=config.model.dtype,
            max_prompt_length=config.data.max_prompt_length,
            images_per_prompt=folders.images_per_prompt,
            videos_per_prompt=folders.videos_per_prompt,
            pixels=self._pixels,
            seed=config.seed,
        )
