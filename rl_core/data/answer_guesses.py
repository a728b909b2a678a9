"""Guesses how the answers in a column are read: an item of a list, a part of a text, the letter of an option; and which
columns hold the options."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rl_core.answer_forms import find_answer, form_of
from rl_core.answers import Answer, answer_text, read_answer
from rl_core.sources.columns import Columns, field_of
from rl_core.sources.conversation import read_conversation
from rl_core.sources.options import (
    ANSWERED_AS,
    NAMED_AS,
    AnswerAs,
    ColumnsKey,
    columns_named,
    read_options,
    right_letter,
)

_NAMES = ("options", "choices", "answer_choices", "candidates", "option", "choice")
_LETTERED = re.compile(r"(?:option|choice|opt)[_ -]?([A-Z])", re.I)
_COUNTED: tuple[AnswerAs, ...] = ("index", "number", "text", "letter")


class Options(NamedTuple):
    """Where the options are, and how answers name them."""

    key: ColumnsKey
    answer_as: AnswerAs


def guess_options(
    names: Sequence[str], sample: Sequence[Mapping[str, Any]], answers: Sequence[Answer | None], named: str | None
) -> tuple[Options | None, list[str]]:
    """The options of a table with these columns, of whose rows `sample` are some and `answers` their answers; and
    sentences about the guess. `named` is the column that a person named."""
    doubts: list[str] = []
    for key in [named] if named else _candidates(names):
        rows = [
            (answer, options)
            for values, answer in zip(sample, answers, strict=True)
            if answer is not None and (options := _options(values, key)) is not None
        ]
        columns = " and ".join(map(repr, columns_named(key)))
        if len(rows) < max(1, 0.9 * len(sample)):
            if rows or named:
                doubts.append(
                    f"not used: {columns}, because only {len(rows)} of {len(sample)} rows looked at have options"
                )
            continue
        ways = _COUNTED if isinstance(rows[0][0], int) else ANSWERED_AS
        fitting = [way for way in ways if all(_letter(*row, way) is not None for row in rows)]
        if not fitting:
            doubts.append(
                f"not used: {columns} looks like options, and the answers name none of them ({rows[0][0]!r:.60})"
            )
            continue
        answer, options = rows[0]
        letter = _letter(answer, options, fitting[0])
        doubts.append(f"options {columns}: the answer {answer!r} is {NAMED_AS[fitting[0]]} and becomes {letter!r}")
        letters = {way: [_letter(*row, way) for row in rows] for way in fitting}
        if others := [way for way in fitting[1:] if letters[way] != letters[fitting[0]]]:
            doubts.append(f"answer_as: {' and '.join(others)} would fit too, and give other letters")
        return Options(key, fitting[0]), doubts
    return None, doubts


def _candidates(names: Sequence[str]) -> list[ColumnsKey]:
    usual = sorted((name for name in names if name.lower() in _NAMES), key=lambda name: _NAMES.index(name.lower()))
    bare = {name: name for name in names if re.fullmatch("[A-Z]", name)}
    spelt = {match.group(1).upper(): name for name in names if (match := _LETTERED.fullmatch(name))}
    return [*usual, *(run for columns in (bare, spelt) if len(run := _run(columns)) > 1)]


def _run(columns: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of A, B, ... up to the first letter without one."""
    found = []
    for letter in map(chr, range(ord("A"), ord("Z") + 1)):
        if letter not in columns:
            break
        found.append(columns[letter])
    return tuple(found)


def _options(values: Mapping[str, Any], key: ColumnsKey) -> dict[str, str] | None:
    try:
        return read_options(values, key)
    except ValueError:
        return None


def _letter(answer: Answer, options: Mapping[str, str], way: AnswerAs) -> str | None:
    try:
        return right_letter(answer, options, way)
    except ValueError:
        return None


def guess_answers(
    columns: Columns,
    names: Sequence[str],
    sample: Sequence[Mapping[str, Any]],
    *,
    pattern: str | None,
    options_key: str | None,
    class_names: Sequence[str] | None,
) -> tuple[Columns, list[str]]:
    """The columns with how their answers are read, and sentences about it. `pattern` and `options_key` were named by a
    person: None has them guessed, an empty text means none. Raises ValueError where the answers are no numbers of the
    `class_names` that a person named."""
    answers = [_answer(row, columns) for row in sample]
    pattern, doubts = _guess_pattern(answers, pattern)
    if pattern:
        answers = [None if one is None else find_answer(pattern, answer_text(one)) for one in answers]
    if class_names:
        _check_classes(columns.answer_key, answers, class_names)
        doubts.append(classes_sentence(columns.answer_key, class_names))
        return _changed(columns, answer_pattern=pattern, class_names=class_names), doubts
    if options_key != "":
        found, sentences = guess_options(names, sample, answers, options_key)
        doubts += sentences
        if found is not None:
            return _changed(columns, answer_pattern=pattern, options_key=found.key, answer_as=found.answer_as), doubts
    given = [one for one in answers if one is not None]
    if given and isinstance(given[0], dict):
        inside = " or ".join(f"{columns.answer_key}.{name}" for name in given[0])
        doubts.append(f"answer_key: {columns.answer_key!r} holds mappings; if one field is the answer, name {inside}")
    if _are_accepted_answers(given):
        longest = max(len(one) for one in given if isinstance(one, list))
        key = f"{columns.answer_key}.0"
        doubts.append(f"answer_key: {columns.answer_key!r} holds lists of up to {longest}; the first is read ({key!r})")
        first, sentences = guess_answers(
            _changed(columns, answer_key=key), names, sample, pattern=pattern, options_key="", class_names=None
        )
        return first, doubts + sentences
    return _changed(columns, answer_pattern=pattern), doubts


def classes_sentence(answer_key: str, class_names: Sequence[str]) -> str:
    """A sentence about the names of class numbers."""
    return f"class_names: the numbers in {answer_key!r} are classes; 0 is {class_names[0]!r:.60}"


def _check_classes(answer_key: str, answers: Sequence[Answer | None], class_names: Sequence[str]) -> None:
    texts = [answer_text(answer) for answer in answers if answer is not None]
    numbers = [int(text) for text in texts if text.isdecimal()]
    if not numbers:
        raise ValueError(f"no answer of the rows looked at in {answer_key!r} is the number of a class")
    least, most, count = min(numbers), max(numbers), len(class_names)
    if most >= count:
        begin = "; the numbers begin at 1: name a class 0 too, before the others" if (least, most) == (1, count) else ""
        raise ValueError(
            f"class_names has {count} names, of the numbers 0 to {count - 1}, and {answer_key!r} has {most}{begin}"
        )


def _are_accepted_answers(answers: Sequence[Answer]) -> bool:
    """Whether all are lists of texts, each of which is right, or lists of one thing; numbers may be a box."""
    lists = [one for one in answers if isinstance(one, list) and one]
    texts = all(isinstance(item, str) for one in lists for item in one)
    return bool(lists) and len(lists) == len(answers) and (texts or all(len(one) == 1 for one in lists))


def _answer(row: Mapping[str, Any], columns: Columns) -> Answer | None:
    """The answer of a row as its column has it; None where there is none."""
    try:
        if columns.answer_key == columns.prompt_key:
            return read_conversation(row.get(columns.prompt_key), is_answered=True).answer
        return read_answer(field_of(row, columns.answer_key))
    except ValueError:
        return None


def _guess_pattern(answers: Sequence[Answer | None], named: str | None) -> tuple[str | None, list[str]]:
    """The pattern that finds the answer in a longer text, if one does."""
    texts = [answer for answer in answers if isinstance(answer, str)]
    form = form_of(texts)
    if named is not None or form is None:
        return named or None, []
    first = next(found for text in texts if (found := find_answer(form.pattern, text)) is not None)
    return form.pattern, [f"answer {first!r}, read {form.place} (columns.answer_pattern: {form.pattern})"]


def _changed(columns: Columns, **values: Any) -> Columns:
    return Columns.model_validate({**columns.model_dump(), **values})
