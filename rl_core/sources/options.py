"""The options of a multiple choice: their letters and texts, and the letter of the right one."""

import ast
import re
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any, Final, Literal, get_args

from rl_core.answers import Answer, written

AnswerAs = Literal["letter", "text", "index", "number"]
"""How a row says which option is right: by its letter, by its text, counted from 0, or counted from 1."""

NAMED_AS: Final[Mapping[AnswerAs, str]] = {
    "letter": "a letter",
    "text": "a text",
    "index": "an index from 0",
    "number": "a number from 1",
}

ANSWERED_AS: Final[tuple[AnswerAs, ...]] = get_args(AnswerAs)

ColumnsKey = str | tuple[str, ...]
"""One column or several, in order."""

_LETTER = re.compile(r"\(?([A-Z])(?:[).:]+(?:\s.*)?)?", re.DOTALL)  # "B", "(B)", "B. a circle"


def columns_named(key: ColumnsKey | None) -> tuple[str, ...]:
    """The columns that a key names; None names none."""
    return () if key is None else (key,) if isinstance(key, str) else key


def read_options(values: Mapping[str, Any], key: ColumnsKey) -> dict[str, str]:
    """[letter] -> text of the options of a row: of one column with a list or a mapping, or of a column for each, of
    which the last ones may be empty. Raises ValueError where there are not two or more texts."""
    value: Any = _unpacked(values.get(key)) if isinstance(key, str) else [values.get(name) for name in key]
    if isinstance(value, Mapping) and isinstance(value.get("text"), list | tuple):  # ARC: {"text": [...], "label": ...}
        value = value["text"]
    if isinstance(value, Mapping):
        # Arrow gives every row of a struct all its fields.
        value = {name: text for name, text in value.items() if not _is_empty(text)}
        if all(_is_letter(name) for name in value):
            return _checked({name.upper(): text for name, text in sorted(value.items())})
        value = list(value.values())
    if not isinstance(value, list | tuple):
        raise ValueError(f"the options are {type(value).__name__}, not a list or a mapping")
    texts = list(value)
    while texts and _is_empty(texts[-1]):
        texts.pop()
    if len(texts) > len(ascii_uppercase):
        raise ValueError(f"there are {len(texts)} options and {len(ascii_uppercase)} letters")
    return _checked(dict(zip(ascii_uppercase, texts, strict=False)))


def _unpacked(value: Any) -> Any:
    """A list or mapping that stands as text in its column, as in a CSV file; any other value as it is."""
    if not (isinstance(value, str) and value.strip().startswith(("[", "{"))):
        return value
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def _checked(options: Mapping[str, Any]) -> dict[str, str]:
    if len(options) < 2:
        raise ValueError(f"there are {len(options)} options; a choice has two or more")
    options = {letter: written(text) for letter, text in options.items()}
    for letter, text in options.items():
        if not isinstance(text, str | int | float) or _is_empty(text):
            raise ValueError(f"option {letter} is {'empty' if _is_empty(text) else type(text).__name__}, not a text")
    return {letter: _plain(str(text), letter) for letter, text in options.items()}


def right_letter(answer: Answer, options: Mapping[str, str], answer_as: AnswerAs) -> str:
    """The letter of the option that a row's answer names; of a list of answers, their letters ("A,C"). Raises
    ValueError where it names none."""
    if isinstance(answer, list) and answer:
        return ",".join(sorted({right_letter(one, options, answer_as) for one in answer}))
    letters = list(options)
    text = str(answer).strip()
    match answer_as:
        case "letter":
            one = _LETTER.fullmatch(text.upper())
            found = [one.group(1)] if one and one.group(1) in options else _several(text.upper(), options)
        case "text":
            found = [one for one, option in options.items() if _plain(text, one).casefold() == option.casefold()]
        case "index" | "number":
            place = int(text) - (answer_as == "number") if text.isdecimal() else -1
            found = letters[place : place + 1] if place >= 0 else []
    if not found:
        raise ValueError(
            f"the answer {text!r:.80} is not {NAMED_AS[answer_as]} of the options {', '.join(options.values())!r:.200} "
            "(columns.answer_as)"
        )
    return ",".join(found) if answer_as == "letter" else found[0]


def _several(chosen: str, options: Mapping[str, str]) -> list[str]:
    """The letters of "A, C", "A and C" or "AC"; none where one of them is not an option's."""
    letters = [letter for letter in re.sub(r"\bAND\b", " ", chosen) if letter not in " ,;/&"]
    return sorted(set(letters)) if all(letter in options for letter in letters) else []


def _plain(text: str, letter: str) -> str:
    """The text without the letter that some data sets write before it: "B. a circle", "(B) a circle"."""
    text = text.strip()
    for begin in (f"({letter})", f"{letter}.", f"{letter})", f"{letter}:"):
        if text.startswith(begin) and text[len(begin) :].strip():
            return text[len(begin) :].strip()
    return text


def _is_letter(name: object) -> bool:
    return isinstance(name, str) and name.upper() in ascii_uppercase and len(name) == 1


def _is_empty(value: object) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())
