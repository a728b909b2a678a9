"""What the training loop asks of the workers; the driver touches no model tensor.

See docs/architecture.md, "The same code everywhere".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Protocol

from rl_core.timing import PhaseTimer
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.types import (
    Float32Array,
    GenerationRequest,
    Group,
    Rollout,
    Sampling,
    SupervisedExample,
)


class WorkerGroup(Protocol):
    """The workers that own the model and its generator. Every argument and result pickles cheaply.

    Trainer and generator share the memory of their devices: from `wake` to `rest` the generator has it, and the calls
    of the trainer raise RuntimeError.
    """

    @property
    def policy_version(self) -> int:
        """Updates behind the trainer's weights: 0 for the model that RL starts from."""

    def wake(self) -> None:
        """The generator takes the devices, with the weights of the trainer. The first call starts it."""

    def rest(self) -> None:
        """The generator gives the devices back to the trainer."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield rollouts as they end."""

    def log_probs(self, groups: Sequence[Group], *, reference: bool) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the policy, or under the frozen reference."""

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] KL(policy || reference) at each token, over the whole vocabulary."""

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the critic's value before each token."""

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """The update of policy and critic. Raises AgreementError when generator and trainer disagree beyond the
        configured bound."""

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
        """End generators, processes and process groups."""


@contextmanager
def awake_generator(workers: WorkerGroup, timer: PhaseTimer | None = None) -> Iterator[None]:
    """The generator has the devices, with the trainer's weights, for the length of the block. The timer measures how
    long it takes to `sync`."""
    try:
        with timer.phase("sync") if timer else nullcontext():
            workers.wake()
        yield
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            workers.rest()
        raise
    workers.rest()
