"""Guesses how the answers in a column are read: an item of a list, a part of a text, the letter of an option."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_core.answer_forms import find_answer, form_of
from rl_core.answers import Answer, answer_text, read_answer
from rl_core.data.option_guesses import guess_options
from rl_core.sources.columns import Columns, field_of
from rl_core.sources.conversation import read_conversation


def guess_answers(
    columns: Columns,
    names: Sequence[str],
    sample: Sequence[Mapping[str, Any]],
    *,
    pattern: str | None,
    options_key: str | None,
) -> tuple[Columns, list[str]]:
    """The columns with how their answers are read, and sentences about it. `pattern` and `options_key` were named by a
    person: None has them guessed, an empty text means none."""
    answers = [_answer(row, columns) for row in sample]
    pattern, doubts = _guess_pattern(answers, pattern)
    if pattern:
        answers = [None if one is None else find_answer(pattern, answer_text(one)) for one in answers]
    if options_key != "":
        found, told = guess_options(names, sample, answers, options_key)
        doubts += told
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
        first, told = guess_answers(_changed(columns, answer_key=key), names, sample, pattern=pattern, options_key="")
        return first, doubts + told
    return _changed(columns, answer_pattern=pattern), doubts


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
