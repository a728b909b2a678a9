"""What passes between the run and its scoring processes, which start fast because this imports no library."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rl_core.isolation.order import ASYNC_GRACE_SECONDS

PARSER = "parse"
"""Optional function of a reward file, `parse(response) -> str | None`: the answer that the reward reads."""

Style = Literal["sample", "sequential", "batch", "trl", "verl", "verl_batch"]
"""How a function is called (rl_core.rewards.call_forms): with a RewardSample; in EasyR1's interface, with a dict or a
list of dicts; in TRL's, with lists by keyword; in verl's, with one response or with lists by keyword."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSpec:
    """Names a reward function, which scoring processes load. `name` is its name in the config, `source` the dotted name
    of a module or the absolute path of a user file."""

    name: str
    source: str | Path
    function: str
    kwargs: Mapping[str, Any]
    has_parser: bool
    style: Style = "sample"
    is_async: bool = False
    reads_messages: bool = False  # of style `trl`: whether it reads completions as messages, and not as texts

    @property
    def is_batch(self) -> bool:
        """Whether one call scores many samples."""
        return self.style in ("batch", "trl", "verl_batch")

    @property
    def grace_seconds(self) -> float:
        """Of an `async def` function."""
        return ASYNC_GRACE_SECONDS if self.is_async else 0.0

    @property
    def is_outside(self) -> bool:
        """A sample may be scored again."""
        return False


class CallResult(NamedTuple):
    """What one function gave for one sample: the fields of rl_core.types.Score, which would load numpy."""

    components: dict[str, float]
    parsed: str | None
    error: str | None
