"""The messages between a run and a worker in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.workers.folders import WorkerFolders


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """The first message: the arguments of the worker."""

    config: RunConfig
    folders: WorkerFolders
    total_optimizer_steps: int
    total_critic_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A method of WorkerGroup to call."""

    method: str
    arguments: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopYielding:
    """The run has left a generation early and does not want the responses that are not finished yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Yielded:
    """One value of a call that yields values."""

    value: Any


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """A record of the worker's log."""

    name: str
    level: int
    text: str
