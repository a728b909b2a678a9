"""A user's function as a tool, in a process of its own: loads it, calls it, and makes of what it returns what the model
is shown."""

import importlib
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from PIL import Image

from rl_core.data.pixels import prepare_image
from rl_core.tools.messages import ShownLimits, ToolRequest, ToolSpec
from rl_core.tools.tool import Tool, ToolSample
from rl_core.user_code.modules import import_file
from rl_core.wording import plain_text

_WANTED = "not a text, an image, a number, a dict, or a list of these"


class SentResult(NamedTuple):
    """A `ToolResult` as it is sent: images as text."""

    shown: Sequence[tuple[str, str]]
    mistake: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Mistake:
    """What the model did wrong."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolatedTool:
    """A loaded function, or the tools of a server."""

    spec: ToolSpec
    tool: Callable[[ToolSample, Mapping[str, Any]], Any]
    limits: ShownLimits

    def call(self, one: ToolRequest) -> object:
        """What it returns, or the model's mistake; it may be an awaitable of that."""
        try:
            returned = self.tool(one.sample, one.arguments)
        except ValueError as mistake:
            return Mistake(str(mistake))
        return _awaited(returned) if isawaitable(returned) else returned

    def call_all(self, inputs: Sequence[ToolRequest]) -> NoReturn:
        """No tool is a batch function."""
        raise NotImplementedError

    def result(self, one: ToolRequest, returned: object) -> SentResult:
        """What the model is shown. Raises ValueError where it is of another kind."""
        return sent(self.limits, returned)


def sent(limits: ShownLimits, returned: object) -> SentResult:
    """What the model is shown of what was returned, within the limits. Raises ValueError where it is of
    another kind."""
    if isinstance(returned, Mistake):
        return SentResult([], _text(returned.text, limits), None)
    parts = returned if isinstance(returned, list | tuple) else [returned]
    return SentResult([_part(part, limits) for part in parts], None, None)


def _part(part: object, limits: ShownLimits) -> tuple[str, str]:
    if isinstance(part, Image.Image):
        stored = prepare_image(part, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels)
        return "image", b64encode(stored.encoded).decode()
    if isinstance(part, str):
        return "text", _text(part, limits)
    if isinstance(part, int | float | dict):
        return "text", _text(json.dumps(part, ensure_ascii=False), limits)
    raise ValueError(f"returned {type(part).__name__}, {_WANTED}")


def _text(text: str, limits: ShownLimits) -> str:
    return plain_text(text[: limits.longest_text])


async def _awaited(returned: Awaitable[Any]) -> object:
    try:
        return await returned
    except ValueError as mistake:
        return Mistake(str(mistake))


def load_tool(spec: ToolSpec, limits: ShownLimits) -> IsolatedTool:
    """Import a function, or make a tool of Sightline's. Raises anything that its module raises, and AttributeError or
    TypeError where the module defines no such function."""
    function = load_value(spec)
    if not callable(function):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(function).__name__}, not a function")
    tool = Tool(function) if spec.settings is None else function(**spec.settings)
    return IsolatedTool(spec=spec, tool=tool, limits=limits)


def load_value(spec: ToolSpec) -> Any:
    """Import what a spec names, whatever it is; None where its module does not define it. Raises anything that the
    module raises."""
    module = import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    return getattr(module, spec.function, None)
