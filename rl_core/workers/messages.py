"""The messages between a run and its workers in other processes. Loads no torch."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from rl_core.config.run import RunConfig
from rl_core.distributed.place import RankPlace
from rl_core.distributed.sendable import sendable
from rl_core.types import Rollout
from rl_core.workers.folders import WorkerFolders


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """The arguments of a worker."""

    config: RunConfig
    folders: WorkerFolders
    total_optimizer_steps: int
    total_critic_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerCall:
    """A method of WorkerGroup to call."""

    method: str
    arguments: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """The call in messages: `compute full_kl`."""
        return " ".join([self.method, *(argument for argument in self.arguments if isinstance(argument, str))])


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """A call has returned; with the policy version after it."""

    value: Any
    policy_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """A call has raised an error; with its cause and the policy version after the call."""

    error: Exception
    cause: BaseException | None
    policy_version: int

    @classmethod
    def of(cls, error: Exception, *, policy_version: int) -> Self:
        """The message for an error: with its traceback as a note, and with its cause, which pickling would lose."""
        found = sendable(error)
        assert isinstance(found, Exception), "made of an Exception"
        found.add_note(f"In the worker's process:\n{''.join(traceback.format_exception(error))}")
        cause = None if error.__cause__ is None else sendable(error.__cause__)
        return cls(error=found, cause=cause, policy_version=policy_version)


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """A record of the worker's log."""

    name: str
    level: int
    text: str


Role = Literal["both", "train", "generate"]
"""What a worker does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOpening:
    """The first message to a rank.

    Attributes:
        place: Its place among the ranks of its role.
        workers_per_machine: Number of workers that share its machine's cores.
        threads: Number of threads with which it computes on a CPU; None for its share of its machine's cores.
    """

    opening: Opening
    role: Role
    place: RankPlace
    workers_per_machine: int
    threads: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """Where a rank runs: its process, and the name and Ray's number of its machine."""

    pid: int
    host: str
    node_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """The end of a rank's call, with the log records since its last message."""

    outcome: Returned | Raised
    logs: Sequence[Logged]


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The rollouts that have finished since the last ones were taken; `is_last` after the end of the generation."""

    rollouts: Sequence[Rollout]
    is_last: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """A sign of life of a rank in the middle of a call. Its progress counts the rollouts and calls that it has finished
    and the log records that it has written."""

    progress: int
    logs: Sequence[Logged]
