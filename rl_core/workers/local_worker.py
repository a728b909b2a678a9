"""One worker in this process: a trainer and a generator on the same device."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock

import torch
from typing_extensions import override

from rl_core.config.cluster import ClusterConfig
from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.device import take_threads
from rl_core.digests import FileRecord
from rl_core.distributed.place import ALONE, RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.models.pixels import PixelCache
from rl_core.progress import Progress, SilentProgress
from rl_core.rollout.generator import Generator
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.training.freed_memory import FREED
from rl_core.training.trainer import Trainer
from rl_core.training.trainer_state import TrainerSnapshot, TrainerState
from rl_core.types import Float32Array, Group, Requests, RolloutStream, Sampling, SupervisedExample
from rl_core.workers.folders import Opening
from rl_core.workers.protocol import Loaded, Pass, WorkerGroup
from rl_core.workers.usage import Usage, UsageMeter


class LocalWorker(WorkerGroup):
    """A worker with a model of its own, or one of several ranks that train one model. All ranks get the same calls in
    the same order, each with its own part of the groups, possibly none of them."""

    def __init__(self, opening: Opening, *, progress: Progress | None = None, place: RankPlace = ALONE) -> None:
        """Take threads, meet the other ranks, if there are any, which need a process each, and load the policy. The
        generator starts at the first `wake`."""
        config, folders = opening.config, opening.folders
        cluster = config.cluster
        take_threads(cluster.devices, fixed=cluster.threads)
        self.ranks = Ranks.join(
            place,
            cluster.sharding,
            ranks_per_sequence=cluster.sequence_parallel_size,
            ranks_per_generator=cluster.tensor_parallel_size,
        )
        images = ImageStore(folders.data / IMAGES_FILE)
        self._pixels = PixelCache(folders.model, images)
        self.trainer = Trainer(
            config,
            model_folder=folders.model,
            base_folder=folders.base,
            pixels=self._pixels,
            total_optimizer_steps=opening.total_optimizer_steps,
            total_critic_steps=opening.total_critic_steps,
            ranks=self.ranks,
        )
        self.state = TrainerState(trainer=self.trainer, images=images)
        self.generator = Generator(self._start_engine)
        self._snapshot: TrainerSnapshot | None = None
        self._snapshot_lock = Lock()  # the next snapshot overwrites the memory of this one
        self._is_copied = True
        self._synced_changes: int | None = None
        self._synced_frozen: int | None = None
        self._config = config
        self._folders = folders
        self._progress = progress or SilentProgress()
        self._meter = UsageMeter(self.trainer.device, unmapped_bytes=self.generator.unmapped_bytes)

    @property
    @override
    def cluster(self) -> ClusterConfig:
        return self._config.cluster

    @property
    @override
    def policy_version(self) -> int:
        return self.trainer.policy_version

    @override
    def wake(self) -> None:
        self._meter.memory.enter("generate")
        with self._meter.time.at("sync"):
            self.generator.wake()
            self._sync_weights()

    @override
    def sleep(self) -> None:
        FREED.give_back()
        self._meter.memory.enter("update")  # notes what generation takes of a GPU while the engine still has it
        with self._meter.time.at("sync"):
            self.generator.sleep()

    @override
    def generate(self, requests: Requests, sampling: Sampling) -> RolloutStream:
        """Of the ranks that hold a generator together only the first one yields rollouts; the others iterate too, since
        they sample with it."""
        return self._meter.time.spent_on("generate", self.generator.engine.generate(requests, sampling))

    @override
    def compute(self, what: Pass, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        compute = getattr(self._trainer_with_device(), what)
        with self._meter.time.at("update"):
            return [compute(groups) for groups in batches]

    @override
    def update(self, batch: UpdateBatch) -> UpdateResult:
        with self._meter.time.at("update"):
            return self._trainer_with_device().update(batch)

    @override
    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        with self._meter.time.at("update"):
            return self._trainer_with_device().imitate(examples)

    @override
    def load(self, what: Loaded, folder: Path) -> None:
        trainer = self._trainer_with_device()
        with self._meter.time.at("load"):
            match what:
                case "policy":  # of which only the configured part is trained
                    trainer.load_policy(folder)
                case "reference":
                    trainer.load_reference(folder)
                case "critic":
                    trainer.load_critic(folder)
                case "saved state" | "saved weights":
                    self.state.load(folder, model_only=what == "saved weights")
                case "saved policy":
                    self.state.free_copies()
                    self.state.load_policy(folder)

    @override
    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group], copy: bool) -> None:
        self._trainer_with_device()
        with self._saving(), self._snapshot_lock:
            self._snapshot = self.state.snapshot(model_only=model_only, probe=probe, copy=copy)
            self._is_copied = copy

    @override
    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        with self._snapshot_lock, nullcontext() if self._is_copied else self._saving():
            snapshot, self._snapshot = self._snapshot, None
            assert snapshot is not None, "one was taken"
            return snapshot.write(folder)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """The phase of a save, for the peaks of the memory. A copy is written during other phases."""
        self._meter.memory.enter("save")
        try:
            with self._meter.time.at("save"):
                yield
        finally:
            self._meter.memory.enter("update")

    @override
    def export(self, folder: Path) -> None:
        self._trainer_with_device().export(folder)

    @override
    def usage(self) -> Usage:
        return self._meter.take()

    @override
    def close(self) -> None:
        """End the generator, free the device's memory, which other processes may need next, and leave the ranks."""
        self.ranks.meet_for_the_last_time()
        try:
            self.state.free_copies()
            self.trainer.close()
            self._free_cached_memory()  # an engine that sleeps needs it once more to end
        finally:
            self.generator.close()  # with vLLM, all of torch's process groups end here
            self.ranks.close()
        self._free_cached_memory()

    @staticmethod
    def _free_cached_memory() -> None:
        if torch.cuda.is_available():
            gc.collect()
            torch.cuda.empty_cache()

    def _sync_weights(self) -> None:
        """Give the awake generator the trainer's weights and their version, unless it has them."""
        trainer, generator = self.trainer, self.generator
        version = trainer.policy_version
        if generator.policy_version == version and self._synced_changes == trainer.weight_changes:
            return
        engine = generator.engine
        has_frozen_weights = engine.has_weights and self._synced_frozen == trainer.frozen_changes
        if not (trainer.sends_adapters and has_frozen_weights):
            engine.load_weights(trainer.named_weights(), policy_version=version)
            self._synced_frozen = trainer.frozen_changes
        if trainer.sends_adapters:
            engine.load_adapters(trainer.named_adapters(), policy_version=version)
        self._synced_changes = trainer.weight_changes

    def _trainer_with_device(self) -> Trainer:
        if self.generator.is_awake:
            raise RuntimeError("the trainer is used while the generator has the device: call sleep first")
        return self.trainer

    def _start_engine(self) -> VllmEngine:
        is_eager = self._config.rollout.is_eager(on_gpu=self.trainer.device.type == "cuda")
        with self._progress.wait(f"start the generator (vLLM{'' if is_eager else ', which compiles'})"):
            return VllmEngine(self._folders.engine_spec(self._config), self._pixels, ranks=self.ranks.generator)
