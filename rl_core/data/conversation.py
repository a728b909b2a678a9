"""A question as rows have it: text, or the turns of a conversation that ends with the user's.

The turns are those of OpenAI's chat format: `{"role": ..., "content": ...}`, the content a text or a list of parts
(`{"type": "text", "text": ...}`, `{"type": "image"}`, `{"type": "video"}`).
"""

from collections.abc import Mapping
from typing import Any, get_args

from rl_core.data.rows import Role, Turn

IMAGE_PLACE = "<image>"
VIDEO_PLACE = "<video>"
_ROLES = get_args(Role)
_PLACES = {"image": IMAGE_PLACE, "video": VIDEO_PLACE}

Conversation = tuple[tuple[Turn, ...], str]
"""The turns before the question, and the question."""


def read_conversation(value: Any) -> Conversation:
    """The conversation in a row's column.

    Raises:
        ValueError: It is missing, or no text and no such conversation; the message is the reason for a BadRow.
    """
    if value is None or value in ("", []):
        raise ValueError("the question is missing")
    if isinstance(value, str):
        return (), value
    if not isinstance(value, list | tuple):
        raise ValueError(f"the question is {type(value).__name__}, not text or a list of turns")
    *history, last = [_turn(number, item) for number, item in enumerate(value)]
    _check_roles([turn.role for turn in (*history, last)])
    if not last.content.strip():
        raise ValueError("the last turn, the question, is empty")
    return tuple(history), last.content


def without_places(text: str) -> str:
    """The text alone."""
    return text.replace(IMAGE_PLACE, "").replace(VIDEO_PLACE, "")


def _turn(number: int, item: Any) -> Turn:
    if not isinstance(item, Mapping) or item.get("role") not in _ROLES:
        raise ValueError(f"turn {number} of the conversation has none of the roles {', '.join(_ROLES)}")
    content = item.get("content")
    if isinstance(content, list | tuple):
        content = "".join(_part(number, part) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"turn {number} of the conversation has no text")
    return Turn(role=item["role"], content=content)


def _part(number: int, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _PLACES:
        return _PLACES[kind]
    if kind != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"turn {number} of the conversation has a part that is no text, image or video")
    text: str = part["text"]
    return text


def _check_roles(roles: list[str]) -> None:
    if "system" in roles[1:]:
        raise ValueError("a system turn stands after the first place of the conversation")
    if roles[-1] != "user":
        raise ValueError(f"the conversation ends with the {roles[-1]}'s turn; the last one must be the user's question")
