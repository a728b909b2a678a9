"""The trainer of one worker: the policy with its optimizer, the frozen reference and the critic."""

import gc
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

import torch

from rl_core.config.run import RunConfig
from rl_core.device import computing_device
from rl_core.distributed.collectives import broadcast_weights, weights_of
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.models.loading import write_hf_folder
from rl_core.models.named_weights import named_adapters, named_hf_weights
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.models.sequence_parallel import SequenceParallel
from rl_core.models.sharding import shard
from rl_core.models.trained_part import UnadaptedPolicy, choose_trained_part
from rl_core.models.value import ValueModel, load_value_model
from rl_core.planning.batches import longest_sequence, optimizer_steps_per_step, update_token_budget
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, UpdateBatch, UpdateResult
from rl_core.training.critic import Critic
from rl_core.training.determinism import deterministic_on_cpu, use_full_float32
from rl_core.training.host_memory import HostWeights
from rl_core.training.log_prob_pass import compute_full_kl, compute_log_probs
from rl_core.training.objective import PolicyObjective
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.policy_update import PolicyUpdate
from rl_core.training.supervised import imitate
from rl_core.types import Float32Array, Group, SupervisedExample

Model = TypeVar("Model", PolicyModel, ValueModel)


class Trainer:
    """Computes log-probs, values and updates; on a CPU these are the same numbers in every run. Of several ranks each
    has a part of the weights, computes its own groups, and takes the same optimizer steps.

    Args:
        base_folder: The model that RL starts from. In RL only the configured part of it is trained; a cold start before
            it trains all weights.

    Attributes:
        policy_version: Number of updates that led to its weights: 0 for the model that RL starts from.
        weight_changes: How often its weights have changed in any way, loading included.
        frozen_changes: The same of the weights that RL does not train.
        reference: None before `load_reference`, and with LoRA, where the base model without adapters is the reference.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        model_folder: Path,
        base_folder: Path,
        pixels: PixelCache,
        total_optimizer_steps: int,
        total_critic_steps: int,
        ranks: Ranks = LONE,
    ) -> None:
        use_full_float32()
        self.config = config
        self.base_folder = base_folder
        self.ranks = ranks
        self.device = computing_device()
        self._model_folder = model_folder
        self._total_optimizer_steps = total_optimizer_steps
        self._total_critic_steps = total_critic_steps
        self.pixels = pixels
        self.policy = self._load(model_folder)
        self.policy_version = 0
        self.weight_changes = self.frozen_changes = 0
        self.reference: PolicyModel | None = None
        self._reference_weights: HostWeights | None = None
        self.critic: Critic | None = None
        self._optimizer: PolicyOptimizer | None = None

    @property
    def has_lora(self) -> bool:
        """Whether LoRA adapters are trained instead of the weights."""
        return self.config.model.lora is not None

    @property
    def sends_adapters(self) -> bool:
        """Whether the generator gets the adapters apart from the frozen weights."""
        return self.config.model.generator_lora is not None

    @property
    def _keeps_moments_in_host_memory(self) -> bool:
        return self.config.trainer.offloads != "none"

    @property
    def experience_token_budget(self) -> int:
        """Most tree tokens of a pass without gradients."""
        return self.config.actor.experience_sequences * longest_sequence(self.config)

    @property
    def optimizer(self) -> PolicyOptimizer:
        """The policy's optimizer in RL, created on first use."""
        if self._optimizer is None:
            actor = self.config.actor
            self._optimizer = PolicyOptimizer(
                self.policy,
                config=actor.optim,
                max_grad_norm=actor.max_grad_norm,
                total_steps=self._total_optimizer_steps,
                steps_at_once=optimizer_steps_per_step(self.config, actor),
                in_host_memory=self._keeps_moments_in_host_memory,
            )
        return self._optimizer

    def named_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """For the generator: with adapters merged, or without them, if it gets them separately."""
        return named_hf_weights(self.policy.model, merged=not self.sends_adapters)

    def named_adapters(self) -> Iterable[tuple[str, torch.Tensor]]:
        """By their names in peft's files."""
        return named_adapters(self.policy.model)

    def old_log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the policy, with the micro-batches of the update: with others they
        would differ by rounding, and the first ratio of the update would not be exactly 1."""
        return self._log_probs(self.policy, groups, token_budget=update_token_budget(self.config))

    def reference_log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the frozen reference."""
        with self._reference_on_device():
            return self._log_probs(self._present_reference(), groups, token_budget=self.experience_token_budget)

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] KL(policy || reference) at each token, over the whole vocabulary."""
        with deterministic_on_cpu(self.device), self._reference_on_device():
            return compute_full_kl(
                self.policy,
                self._present_reference(),
                groups,
                pixels=self.pixels,
                temperature=self.config.rollout.temperature,
                token_budget=self.experience_token_budget,
                ranks=self.ranks,
            )

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the critic's value before each token."""
        assert self.critic is not None, "loaded"
        with deterministic_on_cpu(self.device):
            return self.critic.values(groups)

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """Update policy and critic. The version counts the policy's updates. Raises AgreementError as
        `PolicyUpdate.run`."""
        timer = PhaseTimer()
        meter = None
        if batch.policy and batch.check_agreement:
            meter = AgreementMeter(self.policy_version, keeps_surplus=self.config.algorithm.keeps_surplus)
        with deterministic_on_cpu(self.device):
            policy = self._update_policy(batch, meter, timer)
            critic = self._update_critic(batch.critic, timer)
        return UpdateResult(
            policy=policy,
            critic=critic,
            log_prob_gap=None if meter is None else meter.gap(),
            nonfinite_streak=max(
                (owner.nonfinite_streak for owner in (self._optimizer, self.critic) if owner), default=0
            ),
            seconds=timer.seconds,
        )

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """One supervised optimizer step of the cold start."""
        budget = update_token_budget(self.config)
        with deterministic_on_cpu(self.device):
            metrics = imitate(
                self.policy,
                examples,
                optimizer=self._cold_start_optimizer(),
                pixels=self.pixels,
                token_budget=budget,
                ranks=self.ranks,
            )
        self.weights_changed(policy_version=self.policy_version)
        return metrics

    def load_policy(self, folder: Path) -> None:
        """Load the weights of a Hugging Face folder as version 0, with a new optimizer."""
        self.forget_optimizer()
        self._replace_policy(folder)
        self.weights_changed(policy_version=0)

    def load_reference(self, folder: Path) -> None:
        """Load the frozen reference from a Hugging Face folder; with LoRA the policy without adapters serves as the
        reference, and nothing is loaded."""
        if self.has_lora:
            return
        self.reference = self._reference_weights = None  # two references at the same time may not fit into memory
        self.reference = self._load(folder, is_frozen=True)
        if self.config.trainer.offloads == "all":
            self._reference_weights = HostWeights(self.reference)

    def load_critic(self, folder: Path) -> None:
        """Make a new critic, with a new optimizer, from a Hugging Face folder. LoRA does not apply to it."""
        self.critic = None  # two critics at the same time may not fit into memory
        critic = self.config.critic
        assert critic is not None, "there is a critic"

        def load(with_weights: bool) -> ValueModel:
            return load_value_model(folder, self.config.model, with_weights=with_weights)

        self.critic = Critic(
            self._loaded(load, critic.optim.strategy),
            config=self.config,
            critic=critic,
            pixels=self.pixels,
            total_steps=self._total_critic_steps,
            ranks=self.ranks,
        )

    def load_base(self) -> None:
        """Load all weights of the model that RL starts from, for a checkpoint that holds only some of them."""
        self.forget_optimizer()
        self._replace_policy(self.base_folder)

    def weights_changed(self, *, policy_version: int, by_rl: bool = False) -> None:
        """Note that the policy's weights have changed and now have this version. A change `by_rl` leaves the frozen
        ones as they were."""
        self.policy_version = policy_version
        self.weight_changes += 1
        self.frozen_changes += not by_rl

    def forget_optimizer(self) -> None:
        """Free the memory of the policy's optimizer; the next use creates a new one."""
        self._optimizer = None

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format: the first rank writes, and the others give it their shards."""
        weights = named_hf_weights(self.policy.model)
        if self.ranks.is_first:
            write_hf_folder(self.policy.model, processor_folder=self._model_folder, folder=folder, weights=weights)
        else:
            deque(weights, maxlen=0)

    def close(self) -> None:
        """Free the device's memory."""
        self._optimizer = self.critic = self.reference = self._reference_weights = None
        self.pixels.clear()
        self._free_policy()

    def _log_probs(self, model: PolicyModel, groups: Sequence[Group], *, token_budget: int) -> list[list[Float32Array]]:
        with deterministic_on_cpu(self.device):
            return compute_log_probs(
                model,
                groups,
                pixels=self.pixels,
                temperature=self.config.rollout.temperature,
                token_budget=token_budget,
                ranks=self.ranks,
            )

    def _reference_on_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self._reference_weights is None else self._reference_weights.on_device()

    def _replace_policy(self, folder: Path) -> None:
        """Load another policy. The one before is freed first, because two may not fit into memory."""
        self._free_policy()
        self.policy = self._load(folder)

    def _free_policy(self) -> None:
        if self.ranks.shards is None:
            # What an update has left that broke off: float32 gradients of bfloat16 weights do not move with them.
            self.policy.zero_grad()
            self.policy.to("meta")
        else:
            # A sharded module holds its memory in places that `to` does not reach. There is none after a failed load.
            vars(self).pop("policy", None)
            gc.collect()

    def _load(self, folder: Path, *, is_frozen: bool = False) -> PolicyModel:
        def load(with_weights: bool) -> PolicyModel:
            policy = load_policy(folder, self.config.model, with_weights=with_weights)
            if is_frozen:
                policy.requires_grad_(False)
            elif folder == self.base_folder:
                choose_trained_part(policy.model, self.config.model, run_seed=self.config.seed)
            return policy

        return self._loaded(load, self.config.actor.optim.strategy)

    def _loaded(self, load: Callable[[bool], Model], strategy: str) -> Model:
        """A model on the device. `load` makes it on the CPU, with weights or without: of several ranks only the first
        one reads them."""
        with self.ranks.succeed_together():
            model = load(self.ranks.is_first)
            read = weights_of(model)
            self._place(model, strategy)
        broadcast_weights(model, read, self.ranks)
        return model

    def _place(self, model: PolicyModel | ValueModel, strategy: str) -> None:
        if self.ranks.shards is None:
            model.to(self.device)
        else:
            shard(model, self.ranks.shards, float32_masters=strategy != "adamw_bf16")
        if self.ranks.sequence is not None:
            model.share_sequences(SequenceParallel.of(self.ranks.sequence))

    def _update_policy(
        self, batch: UpdateBatch, meter: AgreementMeter | None, timer: PhaseTimer
    ) -> list[OptimizerStepReport]:
        if not batch.policy:
            return []
        update = PolicyUpdate(
            policy=self.policy,
            reference=self._frozen_reference(),
            objective=PolicyObjective(self.config.algorithm, kl_coef=batch.kl_coef),
            optimizer=self.optimizer,
            pixels=self.pixels,
            config=self.config,
            ranks=self.ranks,
        )
        with self._reference_on_device() if update.needs_reference else nullcontext():
            reports = update.run(batch.policy, meter=meter, timer=timer)
        self.weights_changed(policy_version=self.policy_version + 1, by_rl=True)
        return reports

    def _update_critic(self, batches: Sequence[OptimizerBatch], timer: PhaseTimer) -> list[OptimizerStepReport]:
        if not batches:
            return []
        assert self.critic is not None, "loaded"
        with timer.phase("update_critic"):
            return self.critic.update(batches)

    def _present_reference(self) -> PolicyModel:
        reference = self._frozen_reference()
        assert reference is not None, "loaded"
        return reference

    def _frozen_reference(self) -> PolicyModel | None:
        return UnadaptedPolicy(self.policy) if self.has_lora else self.reference

    def _cold_start_optimizer(self) -> PolicyOptimizer:
        config = self.config.cold_start
        assert config is not None, "there is a cold start"
        if self._optimizer is None:
            self._optimizer = PolicyOptimizer(
                self.policy,
                config=config.optim,
                max_grad_norm=config.max_grad_norm,
                total_steps=config.steps,
                in_host_memory=self._keeps_moments_in_host_memory,
            )
        return self._optimizer
