"""One worker in this process: it owns the policy, its optimizer, the reference and the engine."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from rl_core.config.run import RunConfig
from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.files import atomic_write_json, read_json
from rl_core.models.loading import (
    banned_token_ids,
    load_processor,
    named_hf_weights,
    stop_token_ids,
    write_hf_folder,
)
from rl_core.models.lora import UnadaptedPolicy
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.models.trained_part import choose_trained_part
from rl_core.models.value import load_value_model
from rl_core.planning.batches import longest_sequence, optimizer_steps_a_step
from rl_core.progress import Progress, SilentProgress
from rl_core.rollout.protocol import RolloutEngine
from rl_core.timing import PhaseTimer
from rl_core.training.critic import Critic
from rl_core.training.determinism import deterministic_on_cpu
from rl_core.training.log_prob_pass import compute_full_kl, compute_log_probs
from rl_core.training.objective import PolicyObjective
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.policy_update import PolicyUpdate
from rl_core.training.saved_model import Rests, load_optimizer, load_weights, save_optimizer, save_weights
from rl_core.training.supervised import imitate
from rl_core.types import Float32Array, GenerationRequest, Group, Rollout, Sampling, SupervisedExample
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.probing import Prober
from rl_core.workers.protocol import UpdateBatch, UpdateResult


class LocalWorker:
    """Implements WorkerGroup with one model replica.

    The engine starts at the first sync, because a cold start or a merge needs none. It is awake from a sync until the
    trainer computes again: whichever works has the device's memory.
    """

    def __init__(
        self,
        config: RunConfig,
        folders: WorkerFolders,
        *,
        total_optimizer_steps: int,
        total_critic_steps: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Load the policy.

        Args:
            config: The run.
            folders: What is read.
            total_optimizer_steps: Optimizer steps of the policy in the whole run, for the schedule of its rate.
            total_critic_steps: The same for the critic; 0 without one.
            progress: Shows that the engine is being started; None shows nothing.
        """
        self._config = config
        self._total_optimizer_steps = total_optimizer_steps
        self._total_critic_steps = total_critic_steps
        self._folders = folders
        self._progress = progress or SilentProgress()
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._images = ImageStore.open(folders.data / IMAGES_FILE)
        self._pixels = PixelCache(load_processor(folders.model), self._images)
        self._policy = self._load(folders.model)
        self._reference: PolicyModel | None = None
        self._optimizer: PolicyOptimizer | None = None
        self._critic: Critic | None = None
        self._engine: RolloutEngine | None = None
        self._engine_is_current = False
        self._policy_version = 0

    @property
    def policy_version(self) -> int:
        """Updates behind the trainer's weights."""
        return self._policy_version

    def sync_weights(self) -> None:
        """Wake the engine and hand it the trainer's weights and their version, unless it has them."""
        if self._engine is None:
            is_eager = self._config.rollout.is_eager(on_gpu=self._device.type == "cuda")
            with self._progress.wait(f"start the generation engine (vLLM{'' if is_eager else ', which compiles'})"):
                self._engine = self._start_engine()
        self._engine.wake()
        if not self._engine_is_current:
            self._engine.load_weights(named_hf_weights(self._policy.model), policy_version=self._policy_version)
            self._engine_is_current = True

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they end."""
        if self._engine is None:
            raise RuntimeError("generate before sync_weights: the engine has no weights")
        return self._engine.generate(requests, sampling)

    def log_probs(self, groups: Sequence[Group], *, reference: bool) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the policy, or under the frozen reference."""
        with self._trainer_computing():
            return compute_log_probs(
                self._reference_model() if reference else self._policy,
                groups,
                pixels=self._pixels,
                temperature=self._config.rollout.temperature,
                token_budget=self._experience_budget,
            )

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] KL(policy || reference) over the whole vocabulary."""
        with self._trainer_computing():
            return compute_full_kl(
                self._policy,
                self._reference_model(),
                groups,
                pixels=self._pixels,
                temperature=self._config.rollout.temperature,
                token_budget=self._experience_budget,
            )

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the critic's value before each token."""
        with self._trainer_computing():
            return self._present_critic().values(groups)

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """The update of policy and critic; the policy's weights and version move on together."""
        with self._trainer_computing():
            policy_metrics, policy_seconds = self._update_policy(batch)
            critic_metrics, critic_seconds = self._update_critic(batch)
        self._pixels.clear()
        return UpdateResult(
            metrics={**policy_metrics, **critic_metrics},
            policy_version=self._policy_version,
            nonfinite_streak=max(owner.nonfinite_streak for owner in (self._optimizer, self._critic) if owner),
            seconds={**policy_seconds, **critic_seconds},
        )

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """One supervised optimizer step of the cold start."""
        optimizer = self._cold_start_optimizer()
        budget = self._config.actor.micro_batch_size_per_device_for_update * longest_sequence(self._config)
        with self._trainer_computing():
            metrics = imitate(self._policy, examples, optimizer=optimizer, pixels=self._pixels, token_budget=budget)
        self._pixels.clear()
        self._weights_changed(self._policy_version)
        return metrics

    def load_policy(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder as version 0; the optimizer starts anew. Of the
        model that RL starts from only the configured part is trained."""
        self._rest_engine()
        self._policy = self._load(folder)
        self._optimizer = None
        self._weights_changed(0)

    def load_reference(self, folder: Path) -> None:
        """Make the frozen reference from a Hugging Face folder: with LoRA the policy's own base is the reference."""
        self._rest_engine()
        if not self._has_lora:
            self._reference = self._load(folder).requires_grad_(False)

    def load_critic(self, folder: Path) -> None:
        """Make a new critic from a Hugging Face folder; its optimizer starts anew; LoRA does not touch it."""
        self._rest_engine()
        if self._config.critic is None:
            raise ValueError("critic is not configured")
        self._critic = None  # two of them at one time may not fit
        self._critic = Critic(
            load_value_model(folder, self._config.model).to(self._device),
            config=self._config,
            critic=self._config.critic,
            pixels=self._pixels,
            total_steps=self._total_critic_steps,
        )

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> None:
        """Write model (with LoRA its adapters alone), optimizer, critic, counters and probe; `model_only` leaves the
        optimizers' moments out."""
        self._rest_engine()  # a validation may have left it awake, and a save takes memory
        optimizer = self._actor_optimizer()
        save_weights(folder / "model", self._policy, optimizer, trained_only=self._has_lora)
        if not model_only:
            save_optimizer(folder / "optimizer", self._policy, optimizer)
        if self._critic is not None:
            self._critic.save(folder / "critic", model_only=model_only)
        counters = {"policy_version": self._policy_version} | optimizer.counters()
        atomic_write_json(folder / "counters.json", counters)
        self._prober().write(folder / "probe", probe)

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """Take them back, to train on from there; with `model_only` the moments start anew.

        Raises:
            ProbeMismatch: the policy does not give the probe's log-probs, by more than a tenth of what
                `merge.probe_tolerance` allows a merged model.
        """
        rests, counters = self._load_saved(folder)
        moments = None if model_only else folder / "optimizer"
        load_optimizer(moments, self._policy, self._actor_optimizer(), rests=rests, counters=counters)
        if self._critic is not None:
            self._critic.load(folder / "critic", model_only=model_only)

    def load_saved_policy(self, folder: Path) -> None:
        """Take the policy's weights alone from there; its optimizer, which would take memory for nothing, is forgotten.
        Raises as `load_state` does."""
        self._load_saved(folder)

    def _load_saved(self, folder: Path) -> tuple[Rests, Mapping[str, int]]:
        """Weights and their version, proved by the probe; gives what an optimizer continues with."""
        self._rest_engine()
        if self._has_lora or self._config.model.freeze_vision_tower:
            self._policy = self._load(self._folders.base)
        rests = load_weights(folder / "model", self._policy, trained_only=self._has_lora)
        self._prober().check(folder / "probe")
        counters = read_json(folder / "counters.json")
        self._weights_changed(counters["policy_version"])
        self._optimizer = None
        return rests, counters

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format."""
        write_hf_folder(self._policy.model, processor_folder=self._folders.model, folder=folder)

    def close(self) -> None:
        """End the engine and give the device's memory back: other processes may need it next. The worker is of no use
        any more."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            self._engine_is_current = False
        self._optimizer = self._critic = self._reference = None
        self._pixels.clear()
        self._policy.to("meta")
        if torch.cuda.is_available():
            gc.collect()
            torch.cuda.empty_cache()

    @property
    def _has_lora(self) -> bool:
        return self._config.model.lora is not None

    def _load(self, folder: Path) -> PolicyModel:
        policy = load_policy(folder, self._config.model)
        if folder == self._folders.base:
            choose_trained_part(policy.model, self._config.model, run_seed=self._config.seed)
        return policy.to(self._device)

    def _update_policy(self, batch: UpdateBatch) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Metrics and seconds; nothing where the batch leaves the policy as it is."""
        if not batch.optimizer_batches:
            return {}, {}
        update = PolicyUpdate(
            self._policy,
            reference=self._frozen_reference(),
            objective=PolicyObjective(self._config.algorithm, kl_coef=batch.kl_coef),
            optimizer=self._actor_optimizer(),
            pixels=self._pixels,
            config=self._config,
        )
        metrics = update.run(
            batch.optimizer_batches, policy_version=self._policy_version, check_agreement=batch.check_agreement
        )
        self._weights_changed(self._policy_version + 1)
        return metrics, update.timer.seconds

    def _update_critic(self, batch: UpdateBatch) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Metrics and seconds; nothing without a critic."""
        if not batch.critic_batches:
            return {}, {}
        timer = PhaseTimer()
        with timer.phase("update_critic"):
            metrics = self._present_critic().update(batch.critic_batches)
        return metrics, timer.seconds

    def _present_critic(self) -> Critic:
        if self._critic is None:
            raise RuntimeError("the critic is used before load_critic")
        return self._critic

    def _weights_changed(self, policy_version: int) -> None:
        self._policy_version = policy_version
        self._engine_is_current = False

    @contextmanager
    def _trainer_computing(self) -> Iterator[None]:
        """The trainer has the device for the length of the block, and computes the same numbers in every run."""
        self._rest_engine()
        with deterministic_on_cpu(self._device):
            yield

    def _rest_engine(self) -> None:
        """On a GPU a sleeping engine drops its weights, so the next sync loads them again."""
        if self._engine is not None:
            self._engine.sleep()
            self._engine_is_current &= self._engine.policy_version == self._policy_version

    def _actor_optimizer(self) -> PolicyOptimizer:
        if self._optimizer is None:
            actor = self._config.actor
            self._optimizer = PolicyOptimizer(
                self._policy,
                config=actor.optim,
                max_grad_norm=actor.max_grad_norm,
                total_steps=self._total_optimizer_steps,
                steps_at_once=optimizer_steps_a_step(self._config, actor),
            )
        return self._optimizer

    def _cold_start_optimizer(self) -> PolicyOptimizer:
        config = self._config.cold_start
        if config is None:
            raise ValueError("cold_start is not configured")
        if self._optimizer is None:
            self._optimizer = PolicyOptimizer(
                self._policy, config=config.optim, max_grad_norm=config.max_grad_norm, total_steps=config.steps
            )
        return self._optimizer

    def _reference_model(self) -> PolicyModel:
        reference = self._frozen_reference()
        if reference is None:
            raise RuntimeError("log_probs(reference=True) before load_reference")
        return reference

    def _frozen_reference(self) -> PolicyModel | None:
        return UnadaptedPolicy(self._policy) if self._has_lora else self._reference

    @property
    def _experience_budget(self) -> int:
        return self._config.actor.micro_batch_size_per_device_for_experience * longest_sequence(self._config)

    def _prober(self) -> Prober:
        return Prober(
            policy=self._policy,
            images=self._images,
            pixels=self._pixels,
            token_budget=self._experience_budget,
            config=self._config,
        )

    def _start_engine(self) -> RolloutEngine:
        # Imported here because vLLM takes seconds to import and a cold start or a merge needs none.
        from rl_core.rollout.vllm_engine import VllmEngine

        folder = self._folders.model
        return VllmEngine(
            folder,
            config=self._config.rollout,
            dtype=self._config.model.dtype,
            max_prompt_length=self._config.data.max_prompt_length,
            images_per_prompt=self._folders.images_per_prompt,
            videos_per_prompt=self._folders.videos_per_prompt,
            banned_token_ids=banned_token_ids(folder),
            stop_token_ids=stop_token_ids(folder),
            image_store=self._images,
            seed=self._config.seed,
        )
