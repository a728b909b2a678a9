"""The messages between a run and its workers in other processes. Loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_core.distributed.place import RankPlace
from rl_core.progress import Tally
from rl_core.types import Rollout
from rl_core.workers.folders import Opening


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
class Logged:
    """A record of the worker's log."""

    name: str
    level: int
    text: str


Role = Literal["both", "train", "generate"]
"""What a worker does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOpening:
    """The first message to a rank. On a CPU it computes with so many threads; None for its share of its machine's
    cores. Its place is among the ranks of its role."""

    opening: Opening
    role: Role
    place: RankPlace
    threads: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """Where a rank runs: its process, the name and Ray's number of its machine, and the versions of what computes."""

    pid: int
    host: str
    node_id: str
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """The end of a rank's call: its value, or its error with the cause, which pickling would lose; the version of the
    policy after it; what the rank has computed; and the log records since its last message."""

    value: Any = None
    error: BaseException | None = None
    cause: BaseException | None = None
    policy_version: int
    tally: Tally
    logs: Sequence[Logged]


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The rollouts that have finished since the last ones were taken, and what the rank has computed; `is_last` after
    the end of the generation."""

    rollouts: Sequence[Rollout]
    is_last: bool
    tally: Tally


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """A sign of life of a rank in the middle of a call: how many calls it has finished and log records it has written,
    and what it has computed."""

    progress: int
    tally: Tally
    logs: Sequence[Logged]
