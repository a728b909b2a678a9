"""Reads the question of a row: a text, or the turns of a conversation that ends with the user's turn.

Two forms of a turn are read: OpenAI's (`{"role": "user", "content": ...}`) and ShareGPT's (`{"from": "human", "value":
...}`). An assistant's calls of tools (`tool_calls`, or ShareGPT's `function_call`) are read as the text that a model
writes for them, and results of tools (`tool`, ShareGPT's `observation`) are turns of their own. The content is a text
or a list of parts: `{"type": "text", "text": ...}`, `{"type": "image"}` and `{"type": "video"}`, with or without the
path of the image or video.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from rl_core.sources.media import MEDIUM_KEYS, media_items
from rl_core.sources.rows import ImageInput, Role, Turn

IMAGE_PLACE = "<image>"
VIDEO_PLACE = "<video>"
_NUMBERED_PLACE = re.compile(r"<image[ _-]?(\d{1,3})>")
_ROLES: Final[Mapping[str, Role]] = {
    **{role: role for role in get_args(Role)},
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
}
_PLACES = {"image": IMAGE_PLACE, "image_url": IMAGE_PLACE, "video": VIDEO_PLACE, "video_url": VIDEO_PLACE}


class RowConversation(NamedTuple):
    """The turns before the question; the question, and whose turn it is; the assistant's turn after it, where that is
    read as the answer; and the images and videos that parts of the turns name, as paths or bytes."""

    history: tuple[Turn, ...]
    question: str
    asks: Role = "user"
    answer: str | None = None
    images: tuple[Any, ...] = ()
    videos: tuple[Any, ...] = ()


class Placed(NamedTuple):
    """The texts of the turns, the question last, and of the options by letter; the images in the order of their
    places."""

    turns: Sequence[str]
    options: Mapping[str, str]
    images: Sequence[ImageInput]


def read_conversation(value: Any, *, is_answered: bool = False) -> RowConversation:
    """The conversation in a row's column, a text or a list of turns, of which the last one is the user's or a tool's
    or, with `is_answered`, the assistant's. Raises ValueError with the reason for a BadRow."""
    if value is None or value in ("", []):
        raise ValueError("the question is missing")
    if isinstance(value, str):
        if is_answered:
            raise ValueError("the question is a text, not a list of turns that ends with the answer")
        return RowConversation((), value)
    if not isinstance(value, list | tuple):
        raise ValueError(f"the question is {type(value).__name__}, not text or a list of turns")
    shown: dict[str, list[Any]] = {IMAGE_PLACE: [], VIDEO_PLACE: []}
    turns = [_turn(number, item, shown) for number, item in enumerate(value)]
    answer = _take_answer(turns) if is_answered else None
    _check_roles([turn.role for turn in turns])
    *history, last = turns
    if not last.content.strip():
        raise ValueError("the last turn, the question, is empty")
    return RowConversation(
        tuple(history), last.content, last.role, answer, tuple(shown[IMAGE_PLACE]), tuple(shown[VIDEO_PLACE])
    )


def has_place(text: str, place: str) -> bool:
    """Whether a text has a place of an image or a video; that of an image may be numbered (`<image 2>`)."""
    return place in text or (place == IMAGE_PLACE and _NUMBERED_PLACE.search(text) is not None)


def place_images(turns: Sequence[str], options: Mapping[str, str], columns: Sequence[Sequence[ImageInput]]) -> Placed:
    """Put an `<image>` in the place of each `<image 2>` (`<image_2>`), as MMMU numbers them: the images of the second
    of several columns, or the second image of a single one. Options have the places of images that no turn has. Texts
    with `<image>` stay as they are. Raises ValueError where a place or an image is without the other."""
    images = [image for column in columns for image in column]
    numbered = columns if len(columns) > 1 else [[image] for image in images]
    are_plain = any(IMAGE_PLACE in text for text in turns)
    if are_plain or not any(map(_NUMBERED_PLACE.search, (*turns, *options.values()))):
        return Placed(turns, options, images)
    placed: dict[int, None] = {}
    shown: list[ImageInput] = []

    def place(mark: re.Match[str]) -> str:
        number = int(mark[1])
        found = numbered[number - 1] if 0 < number <= len(numbered) else ()
        if not found:
            raise ValueError(f"the text has {mark[0]}, and the row no image of this number")
        placed[number] = None
        shown.extend(found)
        return IMAGE_PLACE * len(found)

    given = {number for number, found in enumerate(numbered, start=1) if found}
    turns = [_NUMBERED_PLACE.sub(place, turn) for turn in turns]
    if given - placed.keys():
        options = {letter: _NUMBERED_PLACE.sub(place, text) for letter, text in options.items()}
    if missing := sorted(given - placed.keys()):
        raise ValueError(f"the text has no <image {missing[0]}>, and the row an image of this number")
    return Placed(turns, options, shown)


def without_places(text: str) -> str:
    """The text without the places of images and videos."""
    return text.replace(IMAGE_PLACE, "").replace(VIDEO_PLACE, "")


def _take_answer(turns: list[Turn]) -> str:
    if turns[-1].role != "assistant":
        raise ValueError(f"the conversation ends with the {turns[-1].role}'s turn, and not with the assistant's answer")
    if len(turns) == 1:
        raise ValueError("the conversation is nothing but an answer")
    return turns.pop().content


def _turn(number: int, item: Any, shown: Mapping[str, list[Any]]) -> Turn:
    """Read a turn; the images and videos that its parts name are added to `shown`."""
    named = isinstance(item, Mapping)
    role = item.get("role", item.get("from")) if named else None
    if not isinstance(role, str) or role not in _ROLES:
        raise ValueError(f"turn {number} of the conversation has none of the roles {', '.join(_ROLES)}")
    content = item.get("content", item.get("value"))
    if isinstance(content, list | tuple):
        content = "".join(_part(number, part, shown) for part in content)
    if role == "function_call" and isinstance(content, str):
        content = _call_text(number, content)
    if calls := item.get("tool_calls"):
        content = "\n".join([*filter(None, [content]), *(_call_text(number, call) for call in calls)])
    if not isinstance(content, str):
        raise ValueError(f"turn {number} of the conversation has no text")
    return Turn(role=_ROLES[role], content=content)


def _call_text(number: int, call: Any) -> str:
    """A call in the form that is read of a model (rl_core.tools.calls). OpenAI's has its name and arguments, as JSON or
    as its text, in `function`."""
    try:
        made = json.loads(call) if isinstance(call, str) else call.get("function", call)
        arguments = made.get("arguments") or {}
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        written = json.dumps({"name": made["name"], "arguments": arguments}, ensure_ascii=False)
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ValueError(f"turn {number} of the conversation has a call of a tool without name and arguments") from None
    return f"<tool_call>\n{written}\n</tool_call>"


def _part(number: int, part: Any, shown: Mapping[str, list[Any]]) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in _PLACES:
        shown[_PLACES[kind]].extend(media_items({key: part[key] for key in MEDIUM_KEYS if key in part}))
        return _PLACES[kind]
    if kind != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"turn {number} of the conversation has a part that is no text, image or video")
    text: str = part["text"]
    return text


def _check_roles(roles: Sequence[str]) -> None:
    if "system" in roles[1:]:
        raise ValueError("a system turn stands after the first place of the conversation")
    if "tool" in roles[:1]:
        raise ValueError("the conversation begins with a tool's turn")
    if roles[-1] not in ("user", "tool"):
        raise ValueError(
            f"the conversation ends with the {roles[-1]}'s turn; the last one must be the user's question (the "
            "assistant's is read as the answer where columns.answer_key names this column too)"
        )
