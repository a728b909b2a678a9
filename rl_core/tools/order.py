"""What a run asks of the processes that call the tools that a user has written."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from typing_extensions import override

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.isolation.order import Order
from rl_core.tools.tool import ToolSample
from rl_core.user_code.function import find_function

if TYPE_CHECKING:
    from rl_core.tools.own_tool import Describing, OwnTool

_LETTERS_PER_TOKEN = 64
"""No text has so many characters for each of its tokens: what is longer is cut before it is tokenised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """Names a user's tool. `name` is as in the config, `source` the dotted name of a module or the absolute path of a
    file."""

    name: str
    source: str | Path
    function: str
    is_async: bool

    @property
    def is_batch(self) -> bool:
        """A call is the call of one turn."""
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRequest:
    """One call. `place` numbers the calls of a turn; the seed is that of the turn, which no other turn has."""

    sample: ToolSample
    arguments: Mapping[str, Any]
    seed: int
    place: int

    @property
    def key(self) -> tuple[str, int]:
        """Its place among all calls."""
        return str(self.seed), self.place

    @property
    def seed_text(self) -> str:
        """Each call draws random numbers of its own."""
        return f"{self.seed}/{self.place}"


class ToolResult(NamedTuple):
    """What a call gave: texts, and images as PNG bytes; what the model did wrong; or why the tool failed."""

    shown: Sequence[str | bytes]
    mistake: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOrder(Order):
    """The functions of a user's among the tools, and limits of what they show: pixels of an image, letters of a text.
    With `describes` they are not called, but give their schemas as JSON."""

    section: ClassVar = "tools"
    kind: ClassVar = "tool"

    specs: Sequence[ToolSpec]
    min_pixels: int
    max_pixels: int
    longest_text: int
    describes: bool = False

    @classmethod
    def of(cls, config: ToolsConfig, data: DataConfig, *, describes: bool = False) -> "ToolOrder":
        """Raises ValueError where a function is not found."""
        most = config.max_pixels or data.max_pixels
        return cls(
            specs=[_spec(function) for function in config.own],
            timeout_seconds=config.timeout_seconds,
            batch_timeout_seconds=config.timeout_seconds,
            load_timeout_seconds=config.load_timeout_seconds,
            memory_limit_bytes=int(config.memory_limit_gib * 2**30),
            min_pixels=min(data.min_pixels, most),
            max_pixels=most,
            longest_text=_LETTERS_PER_TOKEN * config.max_result_length,
            describes=describes,
        )

    @override
    def load(self, index: int) -> "OwnTool | Describing":
        from rl_core.tools.own_tool import load_tool  # only the processes of the tools load a user's code

        return load_tool(self, index)

    @override
    def result(self, *words: Any) -> ToolResult:
        shown, mistake, error = words
        if error is not None:
            return self.failed(str(error))
        parts = [str(value) if kind == "text" else b64decode(value, validate=True) for kind, value in shown]
        return ToolResult(parts, None if mistake is None else str(mistake), None)

    @override
    def failed(self, reason: str) -> ToolResult:
        return ToolResult([], None, reason)


def _spec(written: str) -> ToolSpec:
    try:
        found = find_function(written)
    except ValueError as error:
        raise ValueError(f"tools.use {error}") from None
    source = found.module or found.file
    return ToolSpec(name=written, source=source, function=found.name, is_async=found.text.is_async(found.name))
