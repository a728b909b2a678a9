import pytest

from rl_core.sources.conversation import read_conversation
from rl_core.sources.rows import Turn
from rl_core.tools.calls import WrittenCall, calls_in


def turn(role, content):
    return {"role": role, "content": content}


def test_text_is_a_question_without_history():
    assert read_conversation("<image>Why?")[:2] == ((), "<image>Why?")


def test_turns_before_the_last_are_history():
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "And this?"}]
    value = [turn("system", "Be brief."), turn("user", "<image>?"), turn("assistant", "A cat."), turn("user", parts)]
    assert read_conversation(value)[:2] == (
        (Turn("system", "Be brief."), Turn("user", "<image>?"), Turn("assistant", "A cat.")),
        "<image>And this?",
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the question is missing"),
        ("", "the question is missing"),
        ([], "the question is missing"),
        (7, "the question is int, not text or a list of turns"),
        ([turn("user", "a"), turn("assistant", "b")], "ends with the assistant's turn"),
        ([turn("user", "a"), turn("system", "b"), turn("user", "c")], "a system turn stands after the first place"),
        ([turn("critic", "a")], "turn 0 of the conversation has none of the roles system, user, assistant, tool"),
        ([turn("tool", "a")], "begins with a tool's turn"),
        ([turn("user", "a"), {"role": "assistant", "tool_calls": [{"function": {}}]}], "turn 1 .* without name"),
        ([turn("user", "a"), {"from": "function_call", "value": "{"}], "turn 1 .* without name"),
        ([turn("user", "a"), "b"], "turn 1 of the conversation has none of the roles"),
        ([turn("user", None)], "turn 0 of the conversation has no text"),
        ([turn("user", [{"type": "audio"}])], "turn 0 of the conversation has a part that is no text"),
        ([turn("user", [{"type": "text", "text": None}])], "turn 0 of the conversation has a part that is no text"),
        ([turn("user", " ")], "the last turn, the question, is empty"),
    ],
)
def test_a_value_that_is_no_conversation_is_refused_with_its_reason(value, reason):
    with pytest.raises(ValueError, match=reason):
        read_conversation(value)


def test_turns_of_sharegpt_are_read_alike():
    value = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "<image>\nWhat?"},
        {"from": "gpt", "value": "A cat."},
        {"from": "human", "value": "And where?"},
        {"from": "gpt", "value": "Outside."},
    ]
    turns = [turn(role, item["value"]) for role, item in zip(ROLES, value, strict=True)]
    assert read_conversation(value, is_answered=True) == read_conversation(turns, is_answered=True)
    assert read_conversation(value[:-1]) == read_conversation(turns[:-1])
    asked = read_conversation(value, is_answered=True)
    assert (asked.question, asked.answer, len(asked.history)) == ("And where?", "Outside.", 3)


ROLES = ["system", "user", "assistant", "user", "assistant"]


def test_media_in_the_parts_of_turns_are_collected_in_order():
    parts = [
        {"type": "image", "image": "/data/a.png", "text": None},
        {"type": "text", "text": "and", "image": None},
        {"type": "image_url", "image_url": {"url": "file:///data/b.png"}},
        {"type": "video", "video": "c.mp4"},
        {"type": "image", "image": None},
    ]
    asked = read_conversation([turn("user", parts)])
    assert asked.question == "<image>and<image><video><image>"
    assert (asked.images, asked.videos) == (("/data/a.png", "/data/b.png"), ("c.mp4",))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", "a text, not a list of turns that ends with the answer"),
        ([turn("user", "a")], "ends with the user's turn, and not with the assistant's answer"),
        ([turn("assistant", "a")], "nothing but an answer"),
        ([turn("user", " "), turn("assistant", "a")], "the last turn, the question, is empty"),
    ],
)
def test_a_conversation_without_its_answer_is_refused(value, reason):
    with pytest.raises(ValueError, match=reason):
        read_conversation(value, is_answered=True)


CALL = '<tool_call>\n{"name": "zoom", "arguments": {"x": 1}}\n</tool_call>'


def test_calls_and_results_of_tools_are_turns():
    """In OpenAI's form, with arguments as text or as JSON, and in ShareGPT's; the answer may be a call too."""
    called = [
        {"id": "a", "type": "function", "function": {"name": "zoom", "arguments": arguments}}
        for arguments in ('{"x": 1}', {"x": 1})
    ]
    openai = [
        turn("user", "<image>?"),
        {"role": "assistant", "content": None, "tool_calls": called[:1]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "image"}]},
        {"role": "assistant", "content": "Again.", "tool_calls": called[1:]},
    ]
    sharegpt = [
        {"from": "human", "value": "<image>?"},
        {"from": "function_call", "value": '{"name": "zoom", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "<image>"},
        {"from": "gpt", "value": f"Again.\n{CALL}"},
    ]
    asked = read_conversation(openai, is_answered=True)
    assert asked == read_conversation(sharegpt, is_answered=True)
    assert asked.history == (Turn("user", "<image>?"), Turn("assistant", CALL))
    assert (asked.question, asked.asks, asked.answer) == ("<image>", "tool", f"Again.\n{CALL}")
    assert calls_in(asked.answer, []) == [WrittenCall("zoom", {"x": 1})], "as it is read of a model"
