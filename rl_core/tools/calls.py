"""The calls in what a model has said: between `<tool_call>` and `</tool_call>`, each a JSON object with `name` and
`arguments`, as the chat templates of Qwen and Hermes write them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_CALL: Final = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THOUGHT_END: Final = "</think>"
_FORM: Final = 'a call is {"name": ..., "arguments": {...}} between <tool_call> and </tool_call>'


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it; `mistake` says why it cannot be read, and then there are no arguments."""

    name: str
    arguments: Mapping[str, Any]
    mistake: str | None = None


def calls_in(text: str) -> list[WrittenCall]:
    """The calls of a turn, in their order. What a model writes while it thinks is not a call."""
    return [_read(found.strip()) for found in _CALL.findall(text.rpartition(_THOUGHT_END)[2])]


def _read(text: str) -> WrittenCall:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return WrittenCall("", {}, f"the call is no readable JSON; {_FORM}")
    match call:
        case {"name": str() as name, "arguments": dict() as arguments}:
            return WrittenCall(name, arguments)
        case {"name": str() as name} if "arguments" not in call:
            return WrittenCall(name, {})
        case _:
            return WrittenCall("", {}, f"the call lacks a name or its arguments are no object; {_FORM}")
