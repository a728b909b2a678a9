"""The interface between the training loop and the workers. The loop itself never touches a model's tensors.

See docs/architecture.md, "The same code everywhere".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Protocol

from rl_core.checkpoints.manifest import FileRecord
from rl_core.config.cluster import ClusterConfig
from rl_core.timing import PhaseTimer
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.types import (
    Float32Array,
    GenerationRequest,
    Group,
    RolloutStream,
    Sampling,
    SupervisedExample,
)
from rl_core.workers.usage import Usage


class WorkerGroup(Protocol):
    """The workers that own trainer and generator. Every argument and result pickles cheaply.

    Trainer and generator share the memory of their devices, unless they generate beside training. From `wake` to
    `sleep` the generator has it, and all calls of the trainer raise RuntimeError.
    """

    @property
    def cluster(self) -> ClusterConfig:
        """The section of the config that says how many workers there are: as it is, or with fewer machines or devices
        where not all of them could be had (`min_workers`)."""

    @property
    def policy_version(self) -> int:
        """Number of updates that led to the trainer's weights: 0 for the model that RL starts from."""

    @property
    def generates_beside_training(self) -> bool:
        """Whether `generate` may run in one thread while the trainer's methods run in another. The generator then has
        devices of its own, and `sleep` does nothing."""

    def wake(self) -> None:
        """Give the devices to the generator, and sync the trainer's weights to it. The first call starts it."""

    def sleep(self) -> None:
        """Give the devices back to the trainer."""

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
        """Yield rollouts as they finish."""

    def old_log_probs(self, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        """[batch][group][rollout] -> [R] log-probs under the policy, equal to those that the update of these optimizer
        batches starts from."""

    def reference_log_probs(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] log-probs under the frozen reference."""

    def full_kl(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] KL(policy || reference) at each token, over the whole vocabulary."""

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the critic's value before each token."""

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """Update policy and critic. Raises AgreementError if the log-probs of generator and trainer differ by more than
        the configured bound."""

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """Take one optimizer step of the cold start."""

    def load_policy(self, folder: Path) -> None:
        """Load the weights of a Hugging Face folder as version 0, with a new optimizer."""

    def load_reference(self, folder: Path) -> None:
        """Load the frozen reference from a Hugging Face folder."""

    def load_critic(self, folder: Path) -> None:
        """Make a new critic, with a new optimizer, from a Hugging Face folder."""

    def save_state(self, folder: Path, *, model_only: bool, probe: Sequence[Group]) -> Mapping[str, FileRecord]:
        """Write the shards of model, optimizer and critic, the counters and the probe into an existing empty folder.
        With `model_only`, the optimizers' moments are not written.

        Returns:
            Size and hash of the files with tensors, by their paths in `folder`.
        """

    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group]) -> None:
        """Copy what `save_state` writes to the host's memory, for `write_snapshot`. A snapshot that was not written is
        replaced. The memory is kept for the next snapshot until the weights of another model are loaded."""

    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        """Write the snapshot as `save_state` does. As the only method, it may be called in another
        thread while other methods run. Raises RuntimeError if there is no snapshot."""

    def load_state(self, folder: Path, *, model_only: bool) -> None:
        """Load a saved state to continue training. With `model_only`, the moments start from zero; weights and
        counters, and with them the position in the learning rate schedule, are restored."""

    def load_saved_policy(self, folder: Path) -> None:
        """Load the policy's weights alone from a saved state, for evaluation or export. The policy's optimizer is
        dropped; the critic is not changed."""

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format: safetensors, config, generation config, processor, chat template."""

    def usage(self) -> Usage:
        """What each worker has used since the last call: its time, and the most memory of each phase."""

    def close(self) -> None:
        """End generators, processes and process groups."""


@contextmanager
def awake_generator(workers: WorkerGroup, timer: PhaseTimer | None = None) -> Iterator[None]:
    """Inside the block the generator has the devices and the trainer's weights. The timer measures `sync`, the time
    until it has them."""
    try:
        with timer.phase("sync") if timer else nullcontext():
            workers.wake()
        yield
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            workers.sleep()
        raise
    workers.sleep()
