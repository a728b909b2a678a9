import pytest

from rl_core.data.conversation import read_conversation
from rl_core.data.rows import Turn


def turn(role, content):
    return {"role": role, "content": content}


def test_text_is_a_question_without_history():
    assert read_conversation("<image>Why?") == ((), "<image>Why?")


def test_turns_before_the_last_are_history():
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "And this?"}]
    value = [turn("system", "Be brief."), turn("user", "<image>?"), turn("assistant", "A cat."), turn("user", parts)]
    assert read_conversation(value) == (
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
        ([turn("tool", "a")], "turn 0 of the conversation has none of the roles system, user, assistant"),
        ([turn("user", "a"), "b"], "turn 1 of the conversation has none of the roles"),
        ([turn("user", None)], "turn 0 of the conversation has no text"),
        ([turn("user", [{"type": "audio"}])], "turn 0 of the conversation has a part that is no text"),
        ([turn("user", [{"type": "text", "text": None}])], "turn 0 of the conversation has a part that is no text"),
        ([turn("user", " ")], "the last turn, the question, is empty"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_reason(value, reason):
    with pytest.raises(ValueError, match=reason):
        read_conversation(value)
