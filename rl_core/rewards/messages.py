"""What passes between the run, the reward server and its scoring processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rl_core.rewards.spec import RewardSpec


class Outcome(NamedTuple):
    """A score in plain values: the fields of rl_core.types.Score, whose module would load numpy."""

    components: dict[str, float]
    parsed: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolOrder:
    """The server's first message: which reward, on how many processes, within which limits."""

    spec: RewardSpec
    workers: int
    timeout_seconds: float
    memory_limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Samples that travel together. `samples` is their pickled list: just a scoring process opens it."""

    number: int
    count: int
    samples: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Outcomes of the samples `start`, `start + 1`, ... of a chunk, and the seconds that scoring them took."""

    chunk: int
    start: int
    outcomes: Sequence[Outcome]
    seconds: float
