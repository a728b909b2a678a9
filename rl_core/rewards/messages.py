"""What passes between the run, the reward server and its scoring processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rl_core.rewards.spec import RewardSpec


class CallResult(NamedTuple):
    """One function's verdict in plain values: the fields of rl_core.types.Score, whose module would load numpy."""

    components: dict[str, float]
    parsed: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolOrder:
    """The server's first message: which functions, on how many processes, within which limits.

    A function is named by its place in `specs`, its lane.
    """

    specs: Sequence[RewardSpec]
    workers: int
    timeout_seconds: float
    batch_timeout_seconds: float
    load_timeout_seconds: float
    memory_limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What the server asks a scoring process for: the function `lane` on the samples start .. stop-1 of a pickled list.

    `timeout_seconds` is the limit of one call of an `async def` function, `timeout_reason` says that it was passed; the
    server watches over all other functions by itself.
    """

    lane: int
    samples: bytes
    start: int
    stop: int
    timeout_seconds: float
    timeout_reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Samples that travel together to the function `lane`. `samples` is their pickled list: just a scoring process
    opens it."""

    number: int
    lane: int
    count: int
    samples: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Outcomes of the samples `start`, `start + 1`, ... of a chunk, and the seconds that scoring them took."""

    chunk: int
    lane: int
    start: int
    outcomes: Sequence[CallResult]
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRetry:
    """A call with a whole batch failed for `reason`; its samples are scored one by one."""

    lane: int
    count: int
    reason: str
