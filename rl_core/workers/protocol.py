"""What the training session asks of the workers; the driver touches no model tensor (design contract 9)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rl_core.types import (
    Float32Array,
    GenerationRequest,
    Group,
    Rollout,
    Sampling,
    SupervisedExample,
    TrainGroup,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBatch:
    """One training step's groups, split into optimizer batches by the session (whole groups, in order).

    Attributes:
        optimizer_batches: One list of groups an optimizer step of the policy; with several PPO epochs each list comes
            again. Empty while the critic warms up: the policy stays as it is.
        critic_batches: The same for the critic; empty without one.
        kl_coef: Weight of the KL term in this step's loss or reward; None without one.
        check_agreement: Compare engine and trainer log-probs on the first optimizer batch, before the weights move, of
            the rollouts that these weights have drawn.
    """

    optimizer_batches: Sequence[Sequence[TrainGroup]]
    critic_batches: Sequence[Sequence[TrainGroup]] = ()
    kl_coef: float | None = None
    check_agreement: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """What an update reports.

    Attributes:
        metrics: Functions of config, data and seed only (they go to metrics.jsonl).
        policy_version: Version of the weights after the update.
        nonfinite_streak: Optimizer steps in a row, up to now, that were skipped for a non-finite gradient: the policy's
            or the critic's, whichever are more.
        seconds: Parts of its wall-clock time: `forward_backward`, `optimizer`, `update_critic`.
    """

    metrics: Mapping[str, float]
    policy_version: int
    nonfinite_streak: int
    seconds: Mapping[str, float] = field(compare=False)


class WorkerGroup(Protocol):
    """The workers that own the model shards and their engines: in this process, or Ray actors later. Every argument
    and result pickles cheaply."""

    @property
    def policy_version(self) -> int:
        """Updates behind the trainer's weights: 0 for the model that RL starts from."""

    def sync_weights(self) -> None:
        """Hand the trainer's weights and their version to the engine, unless it has them."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they end, with the weights of the last sync, which has woken the engine."""

    def log_probs(self, groups: Sequence[Group], *, reference: bool) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the policy, or under the frozen reference."""

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] KL(policy || reference) at each token, over the whole vocabulary."""

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the critic's value before each token."""

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """The update of policy and critic. Raises AgreementError when engine and trainer disagree beyond the configured
        bound."""

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """One supervised optimizer step of the cold start."""

    def load_policy(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder as version 0; the optimizer starts anew."""

    def load_reference(self, folder: Path) -> None:
        """Make the frozen reference from a Hugging Face folder."""

    def load_critic(self, folder: Path) -> None:
        """Make a new critic from a Hugging Face folder; its optimizer starts anew."""

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> None:
        """Write the shards of model, optimizer, critic and counters, and the probe, into an existing empty folder.
        `model_only` leaves the optimizers' moments out."""

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """Take them back, to train on from there. With `model_only` the moments start anew; weights, counters and with
        them the place in the schedule are those that were saved."""

    def load_saved_policy(self, folder: Path) -> None:
        """Take the policy's weights alone from there (evaluation, export); forgets its optimizer and leaves the critic
        as it is."""

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format: safetensors, config, generation config, processor, template."""

    def close(self) -> None:
        """End engines and process groups."""
