"""One worker in this process: a trainer and a generator on the same device."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch

from rl_core.checkpoints.manifest import FileRecord
from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.device import take_threads
from rl_core.distributed.place import ALONE, RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.models.loading import load_processor
from rl_core.models.pixels import PixelCache
from rl_core.progress import Progress, SilentProgress
from rl_core.rollout.generator import Generator, start_engine
from rl_core.rollout.protocol import RolloutEngine
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.training.trainer import Trainer
from rl_core.training.trainer_state import TrainerSnapshot, TrainerState
from rl_core.types import Float32Array, GenerationRequest, Group, RolloutStream, Sampling, SupervisedExample
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.usage import Usage
from rl_core.workers.usage_meter import UsageMeter
from rl_core.workers.weight_sync import InProcessSync, WeightSync


class LocalWorker:
    """Implements WorkerGroup with a model of its own, or as one of several ranks that train one model.

    All ranks get the same calls in the same order. What a call computes with the trainer it computes together: each
    rank gets its own part of the groups, possibly none of them.

    Attributes:
        ranks: Those that train together.
        trainer: Policy, optimizer, reference and critic.
        generator: Samples responses.
        state: Takes and loads the trainer's state.
    """

    generates_beside_training = False

    def __init__(
        self,
        config: RunConfig,
        folders: WorkerFolders,
        *,
        total_optimizer_steps: int,
        total_critic_steps: int = 0,
        progress: Progress | None = None,
        place: RankPlace = ALONE,
    ) -> None:
        """Take threads, meet the other ranks, if there are any, and load the policy. The generator starts at the first
        `wake`.

        Args:
            config: The run.
            folders: The folders of model and data.
            total_optimizer_steps: Optimizer steps of the policy in the whole run, for its learning rate schedule.
            total_critic_steps: Optimizer steps of the critic in the whole run; 0 if there is no critic.
            progress: Shows that the generator is being started; None shows nothing.
            place: Which of the ranks this worker is. Several need a process each.
        """
        cluster = config.cluster
        take_threads(cluster.devices, fixed=cluster.threads)
        self.ranks = Ranks.join(
            place,
            cluster.sharding,
            ranks_a_sequence=cluster.sequence_parallel_size,
            ranks_a_generator=cluster.tensor_parallel_size,
        )
        images = ImageStore.open(folders.data / IMAGES_FILE)
        self._pixels = PixelCache(load_processor(folders.model), images)
        self.trainer = Trainer(
            config,
            model_folder=folders.model,
            base_folder=folders.base,
            pixels=self._pixels,
            total_optimizer_steps=total_optimizer_steps,
            total_critic_steps=total_critic_steps,
            ranks=self.ranks,
        )
        self.state = TrainerState(trainer=self.trainer, images=images)
        self.generator = Generator(self._start_engine)
        self._snapshot: TrainerSnapshot | None = None
        self._snapshot_lock = Lock()  # the next snapshot overwrites the memory of this one
        self._weight_sync: WeightSync = InProcessSync(self.trainer, self.generator)
        self._config = config
        self._folders = folders
        self._progress = progress or SilentProgress()
        self._meter = UsageMeter(self.trainer.device, unmapped_bytes=self.generator.unmapped_bytes)

    @property
    def cluster(self) -> ClusterConfig:
        """See WorkerGroup."""
        return self._config.cluster

    @property
    def policy_version(self) -> int:
        """See WorkerGroup."""
        return self.trainer.policy_version

    def wake(self) -> None:
        """See WorkerGroup."""
        self._meter.memory.enter("generate")
        with self._meter.time.at("sync"):
            self.generator.wake()
            self._weight_sync.sync()

    def sleep(self) -> None:
        """See WorkerGroup."""
        self._meter.memory.enter("update")  # notes what generation takes of a GPU while the engine still has it
        with self._meter.time.at("sync"):
            self.generator.sleep()

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
        """See WorkerGroup. Of the ranks that hold a generator together only the first one yields rollouts; the others
        iterate too, since they sample with it."""
        return self._meter.time.spent_on("generate", self.generator.generate(requests, sampling))

    def old_log_probs(self, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().old_log_probs(batches)

    def reference_log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().reference_log_probs(groups)

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().full_kl(groups)

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().values(groups)

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().update(batch)

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """See WorkerGroup."""
        with self._meter.time.at("update"):
            return self._trainer_with_device().imitate(examples)

    def load_policy(self, folder: Path) -> None:
        """See WorkerGroup. In the model that RL starts from, only the configured part is trained."""
        with self._meter.time.at("load"):
            self._trainer_with_device().load_policy(folder)

    def load_reference(self, folder: Path) -> None:
        """See WorkerGroup."""
        with self._meter.time.at("load"):
            self._trainer_with_device().load_reference(folder)

    def load_critic(self, folder: Path) -> None:
        """See WorkerGroup."""
        with self._meter.time.at("load"):
            self._trainer_with_device().load_critic(folder)

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> Mapping[str, FileRecord]:
        """See WorkerGroup."""
        self._trainer_with_device()
        with self._saving():
            return self.state.snapshot(model_only=model_only, probe=probe, copy=False).write(folder)

    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group]) -> None:
        """See WorkerGroup."""
        self._trainer_with_device()
        with self._saving(), self._snapshot_lock:
            self._snapshot = self.state.snapshot(model_only=model_only, probe=probe, copy=True)

    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        """See WorkerGroup."""
        with self._snapshot_lock:
            snapshot, self._snapshot = self._snapshot, None
            if snapshot is None:
                raise RuntimeError("there is no snapshot to write: call take_snapshot first")
            return snapshot.write(folder)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """The phase of a save, for the peaks of the memory. A snapshot is written during other phases."""
        self._meter.memory.enter("save")
        try:
            with self._meter.time.at("save"):
                yield
        finally:
            self._meter.memory.enter("update")

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """See WorkerGroup. Raises ProbeMismatch if the policy does not reproduce the probe."""
        self._trainer_with_device()
        with self._meter.time.at("load"):
            self.state.load(folder, model_only=model_only)

    def load_saved_policy(self, folder: Path) -> None:
        """See WorkerGroup. Raises ProbeMismatch if the policy does not reproduce the probe."""
        self._trainer_with_device()
        with self._meter.time.at("load"):
            self.state.free_copies()
            self.state.load_policy(folder)

    def export(self, folder: Path) -> None:
        """See WorkerGroup."""
        self._trainer_with_device().export(folder)

    def usage(self) -> Usage:
        """See WorkerGroup."""
        return self._meter.take()

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

    def _trainer_with_device(self) -> Trainer:
        if self.generator.is_awake:
            raise RuntimeError("the trainer is used while the generator has the device: call sleep first")
        return self.trainer

    def _start_engine(self) -> RolloutEngine:
        is_eager = self._config.rollout.is_eager(on_gpu=self.trainer.device.type == "cuda")
        with self._progress.wait(f"start the generator (vLLM{'' if is_eager else ', which compiles'})"):
            return start_engine(self._folders.engine_spec(self._config), self._pixels, ranks=self.ranks.generator)
