"""The calls in what a model has said: between `<tool_call>` and `</tool_call>`, each a JSON object with `name` and
`arguments`, as the chat templates of Qwen and Hermes write it, or in the tags of Qwen3-Coder and Qwen3.5."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_END: Final = re.compile(rf"\s*(?:{_CLOSE}|\Z)")
_SPACE: Final = re.compile(r"\s*")
_FUNCTION: Final = re.compile(rf"\s*<function=([^>\n]+)>((?:(?!{_OPEN}).)*?)</function>\s*(?:{_CLOSE}|\Z)", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL)
_THOUGHT_END: Final = "</think>"
_JSON_FORM: Final = f'a call is {{"name": ..., "arguments": {{...}}}} between {_OPEN} and {_CLOSE}'
_TAG_FORM: Final = (
    f"a call is <function=NAME> with a <parameter=NAME>VALUE</parameter> for each argument and </function>, between "
    f"{_OPEN} and {_CLOSE}"
)


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it; `mistake` says why it cannot be read, and then there are no arguments."""

    name: str
    arguments: Mapping[str, Any]
    mistake: str | None = None


def calls_in(text: str, schemas: Sequence[Mapping[str, Any]]) -> list[WrittenCall]:
    """The calls of a turn, in their order. What a model writes while it thinks is not a call. Arguments in tags get the
    types that the `schemas` of the tools say."""
    return [*_calls(text.rpartition(_THOUGHT_END)[2], schemas)]


def _calls(text: str, schemas: Sequence[Mapping[str, Any]]) -> Iterator[WrittenCall]:
    place = 0
    while (found := text.find(_OPEN, place)) >= 0:
        begin = found + len(_OPEN)
        if (tags := _FUNCTION.match(text, begin)) is not None:
            yield _of_tags(tags[1].strip(), tags[2], schemas)
            place = tags.end()
        elif (read := _json_at(text, begin)) is not None:
            value, place = read
            yield _of_json(value)
        else:
            place = min((end for mark in (_CLOSE, _OPEN) if (end := text.find(mark, begin)) >= 0), default=len(text))
            is_tag = text[begin:place].lstrip().startswith("<")
            why = f"its tags cannot be read; {_TAG_FORM}" if is_tag else f"it is no readable JSON; {_JSON_FORM}"
            yield WrittenCall("", {}, f"the call is not carried out: {why}")


def _json_at(text: str, begin: int) -> tuple[Any, int] | None:
    """The JSON value of a call, and where the call ends."""
    first = _SPACE.match(text, begin)
    assert first is not None, "it matches nothing too"
    try:
        value, end = json.JSONDecoder().raw_decode(text, first.end())
    except (ValueError, RecursionError):
        return None
    closed = _END.match(text, end)
    return None if closed is None else (value, closed.end())


def _of_json(call: Any) -> WrittenCall:
    match call:
        case {"name": str() as name, "arguments": dict() as arguments}:
            return WrittenCall(name, arguments)
        case {"name": str() as name} if "arguments" not in call:
            return WrittenCall(name, {})
        case _:
            return WrittenCall("", {}, f"the call lacks a name or its arguments are no object; {_JSON_FORM}")


def _of_tags(name: str, body: str, schemas: Sequence[Mapping[str, Any]]) -> WrittenCall:
    of_tools: dict[str, Mapping[str, Any]] = {one["function"]["name"]: one["function"] for one in schemas}
    known = of_tools.get(name, {}).get("parameters", {}).get("properties", {})
    arguments: dict[str, Any] = {}
    place = 0
    for one in _PARAMETER.finditer(body):
        if body[place : one.start()].strip():
            break
        key = one[1].strip()
        if key in arguments:
            return WrittenCall(name, {}, f"the parameter {key} is given twice")
        arguments[key] = _typed(one[2], known.get(key, {}))
        place = one.end()
    if body[place:].strip():
        return WrittenCall(name, {}, f"the call has text outside its parameters; {_TAG_FORM}")
    return WrittenCall(name, arguments)


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """A value in tags, which has no quotes, as the type that its schema says; the text where it is none, of which the
    tool says what is wrong."""
    kinds, word = _kinds(schema), text.strip()
    if "null" in kinds and word in ("null", "None"):
        return None
    if "string" in kinds or (not kinds and word[:1] not in ("{", "[")):
        return text
    if "boolean" in kinds and word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a schema allows; none where it says nothing of them."""
    named = schema.get("type", [])
    kinds = {named} if isinstance(named, str) else {*named}
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds |= _kinds(choice)
    return kinds | ({"null"} if schema.get("nullable") else set())
