"""What a scoring process needs to load a reward function. Imports no library, so that scoring processes start fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PARSER = "parse"
"""Optional function of a reward file, `parse(response) -> str | None`: the answer that the reward reads."""

Style = Literal["sample", "sequential", "batch"]
"""How a function is called: with a RewardSample; or, in EasyR1's interface, with a dict or a list of dicts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSpec:
    """Names a reward function. Scoring processes get it pickled and load the function.

    Attributes:
        name: The name in the config, for messages.
        source: Dotted name of a module, or the absolute path of a user's file.
        function: Name of the function in it.
        kwargs: Keyword arguments of every call, JSON values.
        has_parser: Whether the module also has a function `parse`.
        style: How the function is called.
        is_async: Whether it is an `async def`; a process runs several of its calls concurrently.
    """

    name: str
    source: str | Path
    function: str
    kwargs: Mapping[str, Any]
    has_parser: bool
    style: Style = "sample"
    is_async: bool = False
