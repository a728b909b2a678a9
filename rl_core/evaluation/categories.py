"""Accuracy by category: by the values that items have in a column."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Self

from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.statistics import Interval, clustered_wilson_interval


@dataclass(frozen=True, kw_only=True, slots=True)
class CategoryRow:
    """The items with one value in one column; an item with several values is in several rows.

    Attributes:
        column: The column.
        value: Its value.
        n: Items.
        accuracy: Share of right responses.
        ci95: 95 % interval, by items.
    """

    column: str
    value: str
    n: int
    accuracy: float
    ci95: Interval

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The row of which `values` is the JSON."""
        return cls(**(values | {"ci95": tuple(values["ci95"])}))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"ci95": list(self.ci95)}


def category_table(items: Sequence[EvaluationItem]) -> tuple[CategoryRow, ...]:
    """A row a column and value, sorted; none where the items have no categories."""
    grades: dict[tuple[str, str], dict[str, list[bool]]] = {}
    for item in items:
        for column, values in item.categories.items():
            for value in values:
                grades.setdefault((column, value), {}).setdefault(item.uid, []).append(item.is_right)
    return tuple(_row(column, value, grades[column, value]) for column, value in sorted(grades))


def _row(column: str, value: str, by_item: dict[str, list[bool]]) -> CategoryRow:
    shares = [fmean(grades) for grades in by_item.values()]
    interval = clustered_wilson_interval(shares, samples_an_item=len(next(iter(by_item.values()))))
    return CategoryRow(column=column, value=value, n=len(shares), accuracy=fmean(shares), ci95=interval)
