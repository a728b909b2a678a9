"""What a scoring process must know to load a reward function. Imports nothing, for their sake."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PARSER = "parse"
"""Optional function of a reward file, `parse(response) -> str | None`: the answer that the reward reads."""

Style = Literal["sample", "sequential", "batch"]
"""How a function is called: with a RewardSample; or, in EasyR1's interface, with a dict, or with the list of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSpec:
    """A reward function by name; pickles to the processes that load it.

    Attributes:
        name: As configured, for messages.
        source: Dotted module of a built-in, or the absolute path of a user's file.
        function: Name of the function in it.
        kwargs: Keyword arguments bound to every call, JSON values.
        has_parser: Whether the source also offers `parse`.
        style: How it is called.
        is_async: Whether it is an `async def`, of which a process has several under way.
    """

    name: str
    source: str | Path
    function: str
    kwargs: Mapping[str, Any]
    has_parser: bool
    style: Style = "sample"
    is_async: bool = False
