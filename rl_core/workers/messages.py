"""What passes between a run and a worker in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.workers.folders import WorkerFolders


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """The first message: what the worker is made of."""

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
    """A generation is left early: what it has not drawn yet is not wanted any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Yielded:
    """One value of a call that yields."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """The end of a call, and the version of the policy after it."""

    value: Any
    policy_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """The end of a call that raised: the error, what caused it, and the version of the policy after it."""

    error: Exception
    cause: BaseException | None
    policy_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """A record of the worker's log."""

    name: str
    level: int
    text: str
