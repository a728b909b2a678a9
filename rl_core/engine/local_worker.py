"""One worker in this process: it owns the policy, its optimizer, the reference and the engine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.checkpoints.sharded import save_sharded
from rl_core.config.run import RunConfig
from rl_core.data.images import ImageStore
from rl_core.engine.protocol import UpdateBatch, UpdateResult
from rl_core.files import atomic_write_json, read_json
from rl_core.models.loading import load_processor, named_hf_weights, write_hf_folder
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.rollout.protocol import RolloutEngine
from rl_core.training.log_prob_pass import compute_log_probs
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.policy_update import PolicyUpdate, longest_sequence
from rl_core.training.supervised import imitate
from rl_core.types import Float32Array, GenerationRequest, Group, Rollout, Sampling, SupervisedExample


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFolders:
    """Where a worker reads from: the model's architecture and processor, and the prepared data."""

    model: Path
    data: Path


class LocalWorker:
    """Implements WorkerGroup with one model replica. The engine starts at the first sync, because a cold start or a
    merge needs none."""

    def __init__(self, config: RunConfig, folders: WorkerFolders) -> None:
        self._config = config
        self._folders = folders
        self._images = ImageStore.open(folders.data / "images.arrow")
        self._pixels = PixelCache(load_processor(folders.model), self._images)
        self._policy = self._load(folders.model)
        self._reference: PolicyModel | None = None
        self._optimizer: PolicyOptimizer | None = None
        self._engine: RolloutEngine | None = None
        self._engine_is_current = False
        self._policy_version = 0

    @property
    def policy_version(self) -> int:
        """Updates behind the trainer's weights."""
        return self._policy_version

    def sync_weights(self) -> None:
        """Hand the trainer's weights and their version to the engine, unless it has them."""
        if self._engine is None:
            self._engine = self._start_engine()
        if not self._engine_is_current:
            self._engine.wake()
            self._engine.load_weights(named_hf_weights(self._policy.model), policy_version=self._policy_version)
            self._engine_is_current = True

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they end, then let the engine sleep."""
        if self._engine is None:
            raise RuntimeError("generate before sync_weights: the engine has no weights")
        self._engine.wake()
        try:
            yield from self._engine.generate(requests, sampling)
        finally:
            self._engine.sleep()

    def log_probs(self, groups: Sequence[Group], *, reference: bool) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the policy, or under the frozen reference."""
        budget = self._config.actor.micro_batch_size_per_device_for_experience * longest_sequence(self._config)
        return compute_log_probs(
            self._reference_model() if reference else self._policy,
            groups,
            pixels=self._pixels,
            temperature=self._config.rollout.temperature,
            token_budget=budget,
        )

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """The policy update; weights and version move on together."""
        optimizer = self._actor_optimizer()
        update = PolicyUpdate(self._policy, optimizer=optimizer, pixels=self._pixels, config=self._config)
        self._policy.train()
        metrics = update.run(batch.optimizer_batches, check_agreement=batch.check_agreement)
        self._pixels.clear()
        self._weights_changed(self._policy_version + 1)
        return UpdateResult(
            metrics=metrics, policy_version=self._policy_version, nonfinite_streak=optimizer.nonfinite_streak
        )

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """One supervised optimizer step of the cold start."""
        cold_start = self._config.cold_start
        if cold_start is None:
            raise ValueError("cold_start is not configured")
        if self._optimizer is None:
            self._optimizer = PolicyOptimizer(
                self._policy, config=cold_start.optim, max_grad_norm=cold_start.max_grad_norm
            )
        budget = self._config.actor.micro_batch_size_per_device_for_update * longest_sequence(self._config)
        metrics = imitate(self._policy, examples, optimizer=self._optimizer, pixels=self._pixels, token_budget=budget)
        self._pixels.clear()
        self._weights_changed(self._policy_version)
        return metrics

    def load_policy(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder as version 0; the optimizer starts anew."""
        self._policy = self._load(folder)
        self._optimizer = None
        self._weights_changed(0)

    def load_reference(self, folder: Path) -> None:
        """Make the frozen reference from a Hugging Face folder."""
        self._reference = self._load(folder).requires_grad_(False)

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> None:
        """Write model, optimizer, counters and probe."""
        save_sharded(folder / "model", model_state(self._policy))
        counters = {"policy_version": self._policy_version}
        if not model_only:
            optimizer = self._actor_optimizer()
            save_sharded(folder / "optimizer", optimizer_state(self._policy, optimizer.adamw))
            counters |= optimizer.counters()
        atomic_write_json(folder / "counters.json", counters)
        self._write_probe(folder / "probe", probe)

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """Take them back."""
        load_model_state(folder / "model", self._policy)
        counters = read_json(folder / "counters.json")
        self._weights_changed(counters["policy_version"])
        if model_only:
            self._optimizer = None
            return
        optimizer = self._actor_optimizer()
        load_optimizer_state(folder / "optimizer", self._policy, optimizer.adamw)
        optimizer.load_counters(counters)

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format."""
        write_hf_folder(self._policy.model, processor_folder=self._folders.model, folder=folder)

    def close(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
