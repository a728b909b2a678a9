"""The messages between the run, the reward server and its scoring processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rl_core.rewards.spec import RewardSpec


class CallResult(NamedTuple):
    """What one function gave for one sample: the fields of rl_core.types.Score as plain values. Score itself would
    load numpy."""

    components: dict[str, float]
    parsed: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolOrder:
    """The first message to the server: the functions, the number of processes, and the limits.

    All later messages name a function by its index in `specs`.
    """

    specs: Sequence[RewardSpec]
    workers: int
    timeout_seconds: float
    batch_timeout_seconds: float
    load_timeout_seconds: float
    memory_limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """The server asks a scoring process to score the samples start .. stop-1 of a pickled list with one function.

    `timeout_seconds` is the limit of one call of an `async def` function, and `timeout_reason` the message for a call
    that exceeds it. The server itself enforces the limits of all other functions.
    """

    function_index: int
    samples: bytes
    start: int
    stop: int
    timeout_seconds: float
    timeout_reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Samples that the run sends together for one function. `samples` is their pickled list, which only a scoring
    process unpickles."""

    number: int
    function_index: int
    count: int
    samples: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Results of the samples `start`, `start + 1`, ... of a chunk, and the seconds that scoring them took."""

    chunk: int
    function_index: int
    start: int
    results: Sequence[CallResult]
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRetry:
    """A call with a whole batch failed for `reason`; its samples are scored one by one."""

    function_index: int
    count: int
    reason: str
