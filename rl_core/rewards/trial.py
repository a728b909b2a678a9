"""Trying the reward on responses that a person would call right and wrong, before anything expensive starts
(docs/architecture.md, "Bad input is named")."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.trial_findings import (
    called_wrong,
    doubtful_answers,
    failures,
    fragile,
    never_given,
    not_given,
    refused,
    undecided,
)
from rl_core.rewards.trial_rows import EMPTY, OTHER, TriedRow, by_reward, is_right, rows_to_try
from rl_core.types import Prompt, Score

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def _score_rows(rows: Sequence[TriedRow], pool: RewardPool, *, accuracy_key: str, timeout_seconds: float) -> None:
    """Score the rows.

    The first row of each reward that it is for is tried in all its forms. Its other rows are tried in the form that was
    best for this one, and in all forms only if that one is not called right. A reward that gave no score for its first
    row and reached its time limit is not tried on its other rows. Wrong responses are tried where a right one is called
    right.
    """
    first = {row.reward: row for row in reversed(rows)}
    began = time.monotonic()
    _score(pool, [(row, form, text) for row in first.values() for form, text in row.forms.items()])
    while skipped := [row for row in first.values() if row.is_left_out]:
        later = {row.reward: row for row in reversed(rows) if not row.scores}
        if not (following := [later[row.reward] for row in skipped if row.reward in later]):
            break
        first |= {row.reward: row for row in following}
        _score(pool, [(row, form, text) for row in following for form, text in row.forms.items()])
    others = [row for row in rows if not row.scores]
    is_slow = time.monotonic() - began > timeout_seconds
    asked = [row for row in others if first[row.reward].is_judged or not is_slow]
    best = {reward: row.best(accuracy_key) for reward, row in first.items()}
    _score(pool, [(row, best[row.reward], row.forms[best[row.reward]]) for row in asked])
    missed = [row for row in asked if first[row.reward].is_judged and not row.is_called_right(accuracy_key)]
    _score(pool, [(row, form, row.forms[form]) for row in missed for form in row.forms if form not in row.scores])
    right = [row for row in rows if row.judges and row.is_called_right(accuracy_key)]
    _score(pool, [(row, name, text) for row in right for name, text in row.wrong(accuracy_key).items()])


def _score(pool: RewardPool, tries: Sequence[tuple[TriedRow, str, str]]) -> None:
    samples = [
        RewardSample.of_text(
            row.prompt,
            text,
            sample_index=[*row.forms, OTHER, EMPTY].index(name),
            response_length=_plausible_length(text),
        )
        for row, name, text in tries
    ]
    for (row, name, text), score in zip(tries, pool.score_all(samples), strict=True):
        row.responses[name], row.scores[name] = text, score


def _plausible_length(response: str) -> int:
    # There may be no tokenizer yet, and a reward may divide by the length.
    return len(_WORD_OR_MARK.findall(response)) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedForm:
    """What a reward gave for one form of a response: of `tried` rows `right` were called right; the mean of `overall`,
    None where every call failed."""

    reward: str
    name: str
    right: int
    tried: int
    overall: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """The answer of each prompt in a form that the reward calls right, if there is one, with its score; all that was
    tried; what would stop the run; and what looks wrong but may be intended."""

    responses: Sequence[str] = ()
    scores: Sequence[Score] = ()
    table: Sequence[TriedForm] = ()
    problems: Sequence[str]
    warnings: Sequence[str] = ()


def try_on_ground_truth(
    config: RewardConfig,
    prompts: Sequence[Prompt],
    *,
    target_template: str | None,
    accuracy_key: str,
    filter_key: str | None = None,
    image_store: Path | None = None,
    answer_names: Sequence[str] = ("answer",),
) -> GroundTruthTrial:
    """Score the true answers of a few prompts, and wrong ones.

    Args:
        target_template: Jinja text (variables `answer`, `question`) that turns an answer into a response. If None, a
            built-in reward is tried on the form that it gives its full score, and every reward on all USUAL_FORMS.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
        filter_key: The component that groups are filtered by (`algorithm.online_filtering.filter_key`), if any.
        image_store: The images of the prompts.
        answer_names: The columns that the answers come from.
    """
    try:
        rows = rows_to_try(prompts, resolve_rewards(config), target_template)
    except ValueError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines())
    with RewardPool(
        config.model_copy(update={"workers": 1}), image_store=image_store, answer_names=answer_names
    ) as pool:
        _score_rows(rows, pool, accuracy_key=accuracy_key, timeout_seconds=config.timeout_seconds)
    rows = [row for row in rows if row.scores]
    best = [row.best(accuracy_key) for row in rows]
    scores = [row.scores[form] for row, form in zip(rows, best, strict=True)]
    read = {"evaluation.accuracy_key": accuracy_key}
    if filter_key is not None:
        read["algorithm.online_filtering.filter_key"] = filter_key
    never, sometimes = called_wrong(rows, accuracy_key)
    return GroundTruthTrial(
        responses=[row.forms[form] for row, form in zip(rows, best, strict=True)],
        scores=scores,
        table=_table(rows, accuracy_key),
        problems=[*failures(rows, scores, read), *never, *never_given(rows)],
        warnings=[
            *sometimes,
            *undecided(rows, scores),
            *doubtful_answers(config, [row.prompt for row in rows], is_tried=True),
            *refused(rows),
            *not_given(rows),
            *fragile(rows),
        ],
    )


def _table(rows: Sequence[TriedRow], accuracy_key: str) -> list[TriedForm]:
    table = []
    for reward, those in by_reward(rows).items():
        names = dict.fromkeys(name for row in those for name in (*row.forms, OTHER, EMPTY) if name in row.scores)
        for name in names:
            scores = [row.scores[name] for row in those if name in row.scores]
            given = [score.overall for score in scores if score.error is None]
            right = sum(is_right(score, accuracy_key) for score in scores)
            mean = sum(given) / len(given) if given else None
            table.append(TriedForm(reward=reward, name=name, right=right, tried=len(scores), overall=mean))
    return table
