"""The interface between the training loop and the workers. The loop itself never touches a model's tensors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rl_core.config.cluster import ClusterConfig
from rl_core.digests import FileRecord
from rl_core.timing import PhaseTimer
from rl_core.training.batches import UpdateBatch, UpdateResult
from rl_core.types import Float32Array, Group, Requests, RolloutStream, Sampling, SupervisedExample
from rl_core.workers.usage import Usage

Pass = Literal["old_log_probs", "reference_log_probs", "full_kl", "values"]
"""What a pass computes at each token of a response. Each is a method of the trainer.

- `old_log_probs`: log-probs under the policy, equal to those from which the update of these optimizer batches starts.
- `reference_log_probs`: log-probs under the frozen reference.
- `full_kl`: KL(policy || reference) over the whole vocabulary.
- `values`: the critic's value before the token.
"""

Loaded = Literal["policy", "reference", "critic", "saved state", "saved weights", "saved policy"]
"""What is loaded, the first three from a Hugging Face folder, the others from a checkpoint.

- `policy`: the weights as version 0, with a new optimizer.
- `reference`: the frozen reference.
- `critic`: a new critic, with a new optimizer.
- `saved state`: everything, to continue training.
- `saved weights`: the same without the optimizers' moments, which start from zero; weights and counters, and with them
  the position in the learning rate schedule, are restored.
- `saved policy`: the policy's weights alone, for evaluation or export. The policy's optimizer is dropped; the critic is
  not changed.
"""


class Generates(Protocol):
    """Samples responses with the trainer's weights."""

    @property
    def policy_version(self) -> int:
        """Number of updates that led to the trainer's weights: 0 for the model that RL starts from."""

    def wake(self) -> None:
        """Give the devices to the generator, and the trainer's weights. The first call starts it."""

    def sleep(self) -> None:
        """Give the devices back to the trainer."""

    def generate(self, requests: Requests, sampling: Sampling) -> RolloutStream:
        """Yield rollouts as they finish. With `cluster.placement: split` this may run in one thread while methods of
        the trainer run in another."""


class Trains(Protocol):
    """Computes with the models, and changes their weights."""

    def compute(self, what: Pass, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        """[batch][group][rollout] -> [R] what a pass computes; each batch is packed by itself."""

    def update(self, batch: UpdateBatch) -> UpdateResult:
        """Update policy and critic. Raises AgreementError if the log-probs of generator and trainer differ by more than
        the configured bound."""

    def imitate(self, examples: Sequence[SupervisedExample]) -> Mapping[str, float]:
        """Take one optimizer step of the cold start. Returns its metrics."""


class KeepsState(Protocol):
    """Loads and writes what is trained."""

    def load(self, what: Loaded, folder: Path) -> None:
        """Raises ProbeMismatch if a saved policy does not reproduce its checkpoint's probe."""

    def take_snapshot(self, *, model_only: bool, probe: Sequence[Group], copy: bool) -> None:
        """Take model, optimizer and critic, counters and probe for `write_snapshot`, in place of a snapshot that was
        not written.

        Args:
            model_only: Leave out the optimizers' moments.
            probe: Groups whose log-probs a loaded policy must reproduce.
            copy: Copy tensors to the host's memory, which is kept for the next snapshot until another model is loaded.
                Otherwise the snapshot must be written before the weights change.
        """

    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        """Write the snapshot into an empty folder; a copied one may be written in another thread while other methods
        run. Returns size and hash of the files with tensors, by their paths in `folder`."""

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format: safetensors, config, generation config, processor, chat template."""


class WorkerGroup(Generates, Trains, KeepsState, Protocol):
    """The workers that own trainer and generator. These share the memory of their devices, but for `cluster.placement:
    split`. From `wake` to `sleep` the generator has it, and all calls of the trainer raise RuntimeError."""

    @property
    def cluster(self) -> ClusterConfig:
        """The section of the config, with fewer machines or devices where not all could be had (`min_workers`)."""

    def usage(self) -> Usage:
        """What each worker has used since the last call: its time, and the most memory of each phase."""

    def close(self) -> None:
        """End generators, processes and process groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LostWorkers:
    """Workers that were lost together.

    Attributes:
        names: What they are called in messages, in one text.
        machines: The names of their machines; empty where they were lost before that was known.
        cause: Why, without a full stop.
        stacks: What their threads were doing, or what they have written last, in many lines, for a file; empty where
            that is not known.
    """

    names: str
    machines: Sequence[str]
    cause: str
    stacks: str = ""


class WorkerDied(RuntimeError):
    """The process of a worker has ended, or was ended because it hung. New workers can be opened. Every error that
    follows from one loss has the same `lost`."""

    def __init__(self, message: str, lost: LostWorkers | None = None) -> None:
        super().__init__(message)
        self.lost = lost


@contextmanager
def awake_generator(workers: Generates, timer: PhaseTimer | None = None) -> Iterator[None]:
    """Inside the block the generator has the devices and the trainer's weights. `sync` is the time until then."""
    try:
        with timer.phase("sync") if timer else nullcontext():
            workers.wake()
        yield
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            workers.sleep()
        raise
    workers.sleep()
