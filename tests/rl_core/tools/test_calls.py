"""Calls are read as they are written, and what cannot be read is reported."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer
from rl_core.tools.call_reader import CallReader
from rl_core.tools.calls import calls_in
from rl_core.tools.turns import TurnRenderer
from tests.rl_core.models.builders import write_small_model

TURNS = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{{ 'IMAGE' if part.type == 'image' else part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}{% set call = call.function %}CALL{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
VALUE = "(value | tojson if value is mapping or value is not string and value is iterable else value | string)"
FORMS = {
    "JSON": "<tool_call>\n{{ {'name': call.name, 'arguments': call.arguments} | tojson }}\n</tool_call>",
    "tags": "<tool_call>\n<function={{ call.name }}>\n{% for name, value in call.arguments | items %}"
    f"<parameter={{{{ name }}}}>\n{{{{ {VALUE} }}}}\n</parameter>\n{{% endfor %}}</function>\n</tool_call>\n",
    "template": "[CALL {{ call.name }}] {{ call.arguments | tojson }} [END]",
}
TEMPLATE = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"\[CALL (?P<name>[^\]]+)\]",
            "close": "[END]",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    },
}
NAMES = st.text("abc_", min_size=1, max_size=4)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["3", "null", "true", "[1]", "\nx\n", " "])
WHOLE, BROKEN = st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
JSONS = st.recursive(TEXTS | WHOLE | st.none() | st.booleans(), lambda one: st.lists(one, max_size=2), max_leaves=4)
KINDS: dict[str, tuple[Mapping[str, Any], st.SearchStrategy[Any]]] = {
    "text": ({"type": "string"}, TEXTS),
    "whole": ({"type": "integer"}, WHOLE),
    "number": ({"type": "number"}, BROKEN),
    "yes": ({"type": "boolean"}, st.booleans()),
    "perhaps": ({"type": ["integer", "null"]}, WHOLE | st.none()),
    "nullable": ({"type": "number", "nullable": True}, BROKEN | st.none()),
    "any": ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, st.booleans() | st.none()),
    "list": ({"type": "array"}, st.lists(JSONS, max_size=2)),
    "object": ({"type": "object"}, st.dictionaries(TEXTS, JSONS, max_size=2)),
    "untyped": ({}, st.lists(WHOLE, max_size=2) | st.dictionaries(NAMES, WHOLE, max_size=2)),
}
SCHEMA = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {name: kind for name, (kind, _) in KINDS.items()}},
    },
}
ARGUMENTS = st.fixed_dictionaries({}, optional={name: values for name, (_, values) in KINDS.items()})
MARKS = ("tool_call>", "</parameter>", "</function>", "</think>", "<|", "[END]")
"""What ends a value in some form, or is a token of its own."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("model"), "qwen2_5_vl")


@pytest.fixture(scope="module")
def readers(folder: Path) -> dict[str, tuple[ChatRenderer, CallReader]]:
    """[form] -> a chat template that writes calls so, and what the run reads them with."""
    found = {}
    for form, call in FORMS.items():
        template = TURNS.replace("CALL", call.replace("CALL", "\0")).replace("\0", "CALL").replace("IMAGE", _IMAGE)
        chat = ChatRenderer(folder, prompt_template=None, system_prompt=None, chat_template=template, tools=[SCHEMA])
        chat.tokenizer.response_template = TEMPLATE if form == "template" else None
        renderer = TurnRenderer(chat, ToolsConfig(use=("zoom",)))
        renderer.check()
        found[form] = chat, renderer.reader()
    return found


_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.mark.parametrize("form", FORMS)
@given(calls=st.lists(ARGUMENTS, max_size=3), before=st.sampled_from(["", "So: "]))
@settings(deadline=None, max_examples=60)
def test_what_the_template_writes_is_read_back(
    readers: dict[str, tuple[ChatRenderer, CallReader]], form: str, calls: Sequence[dict[str, Any]], before: str
) -> None:
    """With the types of the schema, which tags do not show."""
    if any(mark in json.dumps(calls, ensure_ascii=False) for mark in MARKS):
        return
    chat, reader = readers[form]
    made = [{"type": "function", "function": {"name": "look", "arguments": arguments}} for arguments in calls]
    question = [{"role": "user", "content": "What?"}]
    said = chat.chat([*question, {"role": "assistant", "content": before, "tool_calls": made}], answering=False)
    said = said.removeprefix(chat.chat(question)).removesuffix("<|im_end|>\n")
    assert [(one.name, dict(one.arguments), one.mistake) for one in reader.read(said)] == [
        ("look", arguments, None) for arguments in calls
    ]


def test_the_form_follows_from_the_chat_template(readers: dict[str, tuple[ChatRenderer, CallReader]]) -> None:
    assert {form: reader.by_template for form, (_, reader) in readers.items()} == {
        "JSON": False,
        "tags": False,
        "template": True,
    }


def written(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_a_text_with_the_marks_of_a_call_is_a_text_in_json() -> None:
    marks = "<tool_call> and </tool_call>"
    (call,) = calls_in(written("look", {"text": marks}), [])
    assert call.arguments == {"text": marks}


def test_a_call_within_a_thought_is_no_call() -> None:
    text = f"<think>maybe {written('zoom', {})}</think> no: {written('calculator', {})}"
    assert [call.name for call in calls_in(text, [])] == ["calculator"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((f"<tool_call>{text}", "JSON") for text in ("", "{", "zoom(1)</tool_call>", "[" * 100_000)),
        *(
            (f"<tool_call>{text}</tool_call>", "lacks")
            for text in ("[1]", '{"name": 1}', '{"name": "a", "arguments": []}')
        ),
        ("<tool_call><function=zoom>", "tags"),
        ("<tool_call><function=zoom><parameter=x>1</function></tool_call>", "outside its parameters"),
        ("<tool_call><function=zoom>x is 1</function></tool_call>", "outside its parameters"),
        ("<tool_call><function=zoom><parameter=x>1</parameter> y </function></tool_call>", "outside its parameters"),
        (
            "<tool_call><function=zoom>" + "<parameter=x>1</parameter>" * 2 + "</function></tool_call>",
            "x is given twice",
        ),
    ],
)
def test_a_call_that_cannot_be_read_is_a_mistake(text: str, words: str) -> None:
    (call,) = calls_in(text, [])
    assert call.mistake is not None and words in call.mistake
    assert not call.arguments


def test_a_mistake_costs_its_own_call() -> None:
    said = [
        "<tool_call><function=a>",
        written("b", {}),
        "<tool_call>{</tool_call>",
        "<tool_call><function=c></function>",
    ]
    found = [(call.name, call.mistake is None) for call in calls_in(" ".join(said), [])]
    assert found == [("", False), ("b", True), ("", False), ("c", True)]


@pytest.mark.parametrize("text", ["[CALL look] {", "[CALL look] [1, [END]", "[CALL look] [1] [END]"])
def test_a_call_that_the_response_template_cannot_read_is_a_mistake(
    readers: dict[str, tuple[ChatRenderer, CallReader]], text: str
) -> None:
    _, reader = readers["template"]
    (call,) = reader.read(text)
    assert call.mistake is not None
    assert [call.name for call in reader.read(written("zoom", {}))] == ["zoom"], "as a cold start may teach it"
    assert reader.read("no call") == []


def test_a_value_that_is_not_of_its_type_is_left_to_the_tool() -> None:
    (call,) = calls_in("<tool_call><function=look><parameter=whole>many</parameter></function></tool_call>", [SCHEMA])
    assert call.arguments == {"whole": "many"}


def test_a_call_without_its_end_is_read() -> None:
    """Where the end token of the turn comes instead of it."""
    (call,) = calls_in('<tool_call>{"name": "zoom"}', [])
    assert (call.name, call.mistake) == ("zoom", None)
