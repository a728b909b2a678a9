"""What passes between the run and its scoring processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import RewardSpec


class CallResult(NamedTuple):
    """What one function gave for one sample: the fields of rl_core.types.Score as plain values. Score itself would
    load numpy."""

    components: dict[str, float]
    parsed: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolOrder:
    """The functions and their limits. A function is named by its index in `specs`."""

    specs: Sequence[RewardSpec]
    timeout_seconds: float
    batch_timeout_seconds: float
    load_timeout_seconds: float
    memory_limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """Asks a scoring process to score samples with one function.

    `timeout_seconds` is the limit of one call of an `async def` function, and `timeout_reason` the message for a call
    that exceeds it. The run itself enforces the limits of all other functions.
    """

    function_index: int
    samples: Sequence[RewardSample]
    timeout_seconds: float
    timeout_reason: str
