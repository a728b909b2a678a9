"""Calls are read as they are written, and what cannot be read is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.tools.calls import calls_in

ARGUMENTS = st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.integers() | st.none(), max_size=3)


def written(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@given(
    calls=st.lists(st.tuples(st.text(max_size=3), ARGUMENTS), max_size=3), around=st.sampled_from(["", " so ", "\n"])
)
def test_calls_are_read_back(calls: list[tuple[str, dict[str, object]]], around: str) -> None:
    text = around.join(["", *(written(*call) for call in calls), ""])
    if "</tool_call>" in json.dumps(calls) or "<tool_call>" in json.dumps(calls) or "</think>" in text:
        return
    assert [(call.name, dict(call.arguments), call.mistake) for call in calls_in(text)] == [(*c, None) for c in calls]


def test_a_call_within_a_thought_is_no_call() -> None:
    text = f"<think>maybe {written('zoom', {})}</think> no: {written('calculator', {})}"
    assert [call.name for call in calls_in(text)] == ["calculator"]


@pytest.mark.parametrize(
    "text",
    [
        *("<tool_call>", "<tool_call>{", "<tool_call>zoom(1)</tool_call>", "<tool_call>[1]</tool_call>"),
        *('<tool_call>{"name": 1}</tool_call>', '<tool_call>{"name": "a", "arguments": [1]}</tool_call>'),
        "<tool_call>" + "[" * 100_000,
    ],
)
def test_a_call_that_cannot_be_read_is_a_mistake(text: str) -> None:
    (call,) = calls_in(text)
    assert call.mistake
    assert not call.arguments


def test_a_call_without_its_end_is_read() -> None:
    """Where the end token of the turn comes instead of it."""
    (call,) = calls_in('<tool_call>{"name": "zoom"}')
    assert (call.name, call.mistake) == ("zoom", None)
