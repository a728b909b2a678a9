"""Guesses which columns hold the options of a multiple choice, and how the answers name the right one."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rl_core.answers import Answer
from rl_core.sources.options import (
    ANSWERED_AS,
    NAMED_AS,
    AnswerAs,
    OptionsKey,
    option_columns,
    read_options,
    right_letter,
)

_NAMES = ("options", "choices", "answer_choices", "candidates", "option", "choice")
_LETTERED = re.compile(r"(?:option|choice|opt)[_ -]?([A-Z])", re.I)
_COUNTED: tuple[AnswerAs, ...] = ("index", "number", "text", "letter")


class Options(NamedTuple):
    """Where the options are, and how answers name them."""

    key: OptionsKey
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
        columns = " and ".join(map(repr, option_columns(key)))
        if len(rows) < max(1, 0.9 * len(sample)):
            if rows or named:
                doubts.append(
                    f"not used: {columns}, because only {len(rows)} of {len(sample)} rows looked at have options"
                )
            continue
        fitting = [way for way in _order(rows[0][0]) if all(_letter(*row, way) is not None for row in rows)]
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


def _candidates(names: Sequence[str]) -> list[OptionsKey]:
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


def _order(answer: Answer) -> tuple[AnswerAs, ...]:
    return _COUNTED if isinstance(answer, int) else ANSWERED_AS


def _options(values: Mapping[str, Any], key: OptionsKey) -> dict[str, str] | None:
    try:
        return read_options(values, key)
    except ValueError:
        return None


def _letter(answer: Answer, options: Mapping[str, str], way: AnswerAs) -> str | None:
    try:
        return right_letter(answer, options, way)
    except ValueError:
        return None
