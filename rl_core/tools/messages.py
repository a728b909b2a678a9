"""What passes between the run and the processes that call what a user has written of its tools."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rl_core.digests import digest_of
from rl_core.tools.tool import ToolSample

STEP = "step"
"""The method of an environment that takes whole turns of the model."""
RESET = "reset"
"""The method that begins a conversation, and may return what is shown at the end of its prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownLimits:
    """Limits of what is shown: pixels of an image, characters of a text."""

    min_pixels: int
    max_pixels: int
    longest_text: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """Names a tool that is called in a separate process.

    Attributes:
        name: As in the config.
        source: The dotted name of a module, or the absolute path of a file.
        settings: What `function` makes the tool of, where it is one of Sightline's; None: it is the tool.
        grace_seconds: How long a process that ends its calls at their time limit by itself is waited for; 0 for others.
    """

    name: str
    source: str | Path
    function: str
    is_async: bool
    settings: Mapping[str, Any] | None = None
    grace_seconds: float = 0.0

    @property
    def is_batch(self) -> bool:
        """A call is one call of a model."""
        return False

    @property
    def is_outside(self) -> bool:
        """A tool may do what must not be done twice."""
        return True


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


class Answered(Protocol):
    """The result of a call, which can be kept."""

    @property
    def error(self) -> str | None:
        """Why the call gave nothing."""

    @property
    def words(self) -> Sequence[Any]:
        """JSON values, of which the order's `result` makes it again."""


class ToolResult(NamedTuple):
    """What a call gave: texts, and images as PNG bytes; what the model did wrong; or why the tool failed."""

    shown: Sequence[str | bytes]
    mistake: str | None
    error: str | None

    @property
    def words(self) -> Sequence[Any]:
        """Images as text."""
        shown = [["text", p] if isinstance(p, str) else ["image", b64encode(p).decode()] for p in self.shown]
        return shown, self.mistake, self.error


class EnvironmentCall(NamedTuple):
    """A call of a method, by its name."""

    method: str
    arguments: Mapping[str, Any]


class EnvironmentTurn(NamedTuple):
    """The calls of a turn, the number of pictures that the conversation had shown before it, and the marks of what the
    calls gave."""

    calls: tuple[EnvironmentCall, ...]
    pictures: int
    results: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """The calls of one turn, none where the conversation is over; `RESET` alone asks for what is shown before the first
    turn.

    Attributes:
        seed: What the environment is reset with: the same in a group.
        conversation: The seed of the conversation. A greedy response has that of a sampled one.
        past: The earlier turns, with which another process makes the state again.
        row_pictures: Number of the pictures that are the row's: those that `RESET` sees.
        opening: The mark of what `RESET` gave when it was asked for that; None where it was not.
    """

    sample: ToolSample
    seed: int
    conversation: int
    past: tuple[EnvironmentTurn, ...]
    calls: tuple[EnvironmentCall, ...]
    row_pictures: int
    opening: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Its place among all turns."""
        return str(self.conversation), len(self.past)

    @property
    def seed_text(self) -> str:
        """Random numbers that are drawn from no generator of the environment's own are those of the turn."""
        return f"{self.conversation}/{len(self.past)}"


class TurnResult(NamedTuple):
    """What the calls of a turn gave, in their order; whether the environment is done; its numbers so far; what was
    another result than before when the state was made again, if anything was; or why there is nothing."""

    results: Sequence[ToolResult]
    is_done: bool
    numbers: Mapping[str, float]
    differs: str | None
    error: str | None

    @property
    def words(self) -> Sequence[Any]:
        """Images as text."""
        results = [result.words for result in self.results]
        return results, self.is_done, dict(self.numbers), self.differs, self.error


def mark_of(words: Sequence[Any]) -> str:
    """Identifies what a call has shown, or the mistake, by the words of its result."""
    shown, mistake, *_ = words
    return digest_of([shown, mistake])
