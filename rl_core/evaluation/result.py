"""The result of an evaluation, and its folder with items.parquet and result.json, written together or not at all."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, TypeAdapter

from rl_core.evaluation.items import EvaluationItem, Mode, read_items, write_items
from rl_core.evaluation.statistics import Interval, bootstrap_interval, clustered_wilson_interval, mean_of_known
from rl_core.files import atomic_write_json, committed_folder
from rl_core.rewards.components import OVERALL

ITEMS_FILE = "items.parquet"
RESULT_FILE = "result.json"

SOURCE_COLUMN = "data_source"
"""The column of rows for data sources in a table of categories."""

AtK = tuple[tuple[int, float], ...]
"""(k, share) pairs, k rising."""


class CategoryRow(BaseModel, frozen=True):
    """Accuracy of the `n` items that have a value in a column; one with several values is in several rows."""

    column: str
    value: str
    n: int
    accuracy: float
    ci95: Interval


class EvaluationResult(BaseModel, frozen=True):
    """The result of one mode: `n` items with `samples` responses that have a score. `failed_rewards` more have none and
    are left out, and so is an item of which no response has one.

    Attributes:
        ci95, bootstrap95: Intervals of the accuracy over items (clustered_wilson_interval, and by resampling).
        pass_at, majority_at: Of the items with k responses or more. Empty where each item has one response; majority@k
            also where no answer is read from them.
        parse_failure_rate: Of the responses that the reward parses; None where it parses none.
        truncation_rate, mean_length: Of all responses; None for saved ones.
    """

    mode: Mode
    n: int
    samples: int
    accuracy: float
    ci95: Interval
    bootstrap95: Interval
    pass_at: AtK
    majority_at: AtK
    parse_failure_rate: float | None
    truncation_rate: float | None
    mean_length: float | None
    reward_mean: float
    failed_rewards: int
    categories: tuple[CategoryRow, ...]


Results = dict[Mode, EvaluationResult]
_RESULTS = TypeAdapter(Results)


def summarise(items: Sequence[EvaluationItem]) -> EvaluationResult:
    """Sum up the items of one mode. Raises ValueError when modes or numbers of responses differ, or none has a
    score."""
    modes = {item.mode for item in items}
    if len(modes) != 1:
        raise ValueError(f"need the items of one mode, got items of {sorted(modes)}")
    rewards = [item.components[OVERALL] for item in items if item.error is None]
    if not rewards:
        raise ValueError(f"none of {len(items)} responses has a score; the first reason: {items[0].error}")
    groups = _groups(items)
    scored = [of_item for group in groups if (of_item := [item for item in group if item.is_right is not None])]
    shares = [share for share in item_shares(items).values() if share is not None]
    counts = [k for k in sample_counts(len(groups[0])) if k <= max(map(len, scored))] if len(groups[0]) > 1 else []
    known = [item.parse_failed for item in items if item.parse_failed is not None]
    lengths = [item.length for item in items if item.length is not None]
    return EvaluationResult(
        mode=modes.pop(),
        n=len(scored),
        samples=len(rewards),
        accuracy=fmean(shares),
        ci95=clustered_wilson_interval(shares, samples_per_item=len(rewards) / len(scored)),
        bootstrap95=bootstrap_interval(shares),
        pass_at=tuple((k, _pass_at(scored, k)) for k in counts),
        majority_at=_majority_at(scored, counts),
        parse_failure_rate=fmean(known) if known else None,
        truncation_rate=fmean(item.finish_reason == "length" for item in items) if lengths else None,
        mean_length=fmean(lengths) if lengths else None,
        reward_mean=fmean(rewards),
        failed_rewards=len(items) - len(rewards),
        categories=category_table(items),
    )


def items_words(n: int, failed_rewards: int) -> str:
    """The number of items of a result beside its accuracy, with the number of responses that were left out."""
    return f"{n} ({failed_rewards} not scored)" if failed_rewards else f"{n}"


def item_shares(items: Sequence[EvaluationItem]) -> dict[str, float | None]:
    """[uid] -> share of right responses among those with a score; None where none has one. Raises ValueError when items
    have different numbers of responses."""
    return {group[0].uid: mean_of_known([item.is_right for item in group]) for group in _groups(items)}


def _groups(items: Sequence[EvaluationItem]) -> list[list[EvaluationItem]]:
    """The responses to each item, in the order of the samples."""
    ordered = sorted(items, key=lambda item: (item.uid, item.sample_index))
    groups = [list(group) for _, group in groupby(ordered, key=lambda item: item.uid)]
    if len(counts := {len(group) for group in groups}) != 1:
        raise ValueError(f"every item needs the same number of responses, got {sorted(counts)}")
    return groups


def _pass_at(groups: Sequence[Sequence[EvaluationItem]], k: int) -> float:
    return fmean(
        pass_at_k([sum(bool(item.is_right) for item in group)], n=len(group), k=k)
        for group in groups
        if len(group) >= k
    )


def _majority_at(groups: Sequence[Sequence[EvaluationItem]], counts: Sequence[int]) -> AtK:
    if all(item.parsed is None for group in groups for item in group):
        return ()
    votes = [[Vote(answer=item.parsed, is_right=bool(item.is_right)) for item in group] for group in groups]
    return tuple((k, majority_at_k([some for some in votes if len(some) >= k], k=k)) for k in counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """A response: the answer that was read from it, and whether it is right."""

    answer: str | None
    is_right: bool


def pass_at_k(num_right: Sequence[int], *, n: int, k: int) -> float:
    """The chance that at least one of k responses is right, from n responses to each item, c of them right (Chen et al.
    2021, arXiv 2107.03374, equation 1): the mean over items of 1 - C(n - c, k) / C(n, k), which is unbiased."""
    return fmean(1 - math.comb(n - right, k) / math.comb(n, k) for right in num_right)


def majority_at_k(items: Sequence[Sequence[Vote]], *, k: int) -> float:
    """How often the most common of k answers is right (self-consistency: Wang et al. 2022, arXiv 2203.11171).

    Answers are equal when their texts are equal. Of several equally common answers the earliest counts. Responses
    without an answer have no vote; an item where no response has an answer is wrong. With n responses to an item, the
    mean over its n // k blocks of k responses is taken.
    """
    return fmean(
        fmean(_majority_is_right(votes[start : start + k]) for start in range(0, len(votes) - k + 1, k))
        for votes in items
    )


def sample_counts(n: int) -> list[int]:
    """The values of k that are reported: the powers of two below n, and n."""
    return [*(1 << power for power in range((n - 1).bit_length())), n]


def _majority_is_right(votes: Sequence[Vote]) -> bool:
    counts = Counter(vote.answer for vote in votes if vote.answer is not None)
    if not counts:
        return False
    (winner, _), *_ = counts.most_common(1)  # of equally common answers, the first that was counted
    return next(vote.is_right for vote in votes if vote.answer == winner)


def category_table(items: Sequence[EvaluationItem]) -> tuple[CategoryRow, ...]:
    """One row for each column and value of the items with a score, sorted, and for each data source where there are
    several; empty where they have no categories."""
    grades: dict[tuple[str, str], dict[str, list[bool]]] = {}
    has_sources = len({item.data_source for item in items}) > 1
    for item in items:
        if item.is_right is None:
            continue
        sources = {SOURCE_COLUMN: (item.data_source,)} if has_sources else {}
        for column, values in {**item.categories, **sources}.items():
            for value in values:
                grades.setdefault((column, value), {}).setdefault(item.uid, []).append(item.is_right)
    return tuple(_category_row(column, value, grades[column, value]) for column, value in sorted(grades))


def _category_row(column: str, value: str, by_item: dict[str, list[bool]]) -> CategoryRow:
    shares = [fmean(grades) for grades in by_item.values()]
    interval = clustered_wilson_interval(shares, samples_per_item=fmean(map(len, by_item.values())))
    return CategoryRow(column=column, value=value, n=len(shares), accuracy=fmean(shares), ci95=interval)


def write_evaluation(folder: Path, items: Mapping[Mode, Sequence[EvaluationItem]]) -> Results:
    """Replace `folder` by the items of all modes and their results, or raise as `summarise` and change nothing."""
    results = {mode: summarise(of_mode) for mode, of_mode in items.items()}
    with committed_folder(folder) as temporary:
        write_items(temporary / ITEMS_FILE, [item for of_mode in items.values() for item in of_mode])
        atomic_write_json(temporary / RESULT_FILE, _RESULTS.dump_python(results, mode="json"))
    return results


def read_results(folder: Path) -> Results:
    """Read the result of each mode. Raises FileNotFoundError when there is no evaluation."""
    return _RESULTS.validate_json((folder / RESULT_FILE).read_bytes())


def read_evaluation(folder: Path) -> dict[Mode, list[EvaluationItem]]:
    """The items of each mode, in the order in which they were written. Raises FileNotFoundError."""
    items: dict[Mode, list[EvaluationItem]] = {}
    for item in read_items(folder / ITEMS_FILE):
        items.setdefault(item.mode, []).append(item)
    return items
