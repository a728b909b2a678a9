"""The contents of a comparison as plain values, and its HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rl_core.evaluation.comparison import Comparison, GroupAccuracy
from rl_core.evaluation.result import EvaluationResult
from rl_core.evaluation.statistics import SIGNIFICANT
from tasks.comparison.stragglers import RULE, Straggler
from tasks.results.report_charts import Chart, draw
from tasks.results.report_page import interval_over_seeds, percent, points, template


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRow:
    """A group; its accuracies, of base and trained models, are None where no run is evaluated."""

    label: str
    seeds: Sequence[int]
    base: float | None
    accuracy: GroupAccuracy | None
    stragglers: Sequence[Straggler]

    @property
    def over_seeds(self) -> str:
        """The mean, the range and the interval over seeds, or "one seed", in a line."""
        if self.accuracy is None:
            return "not evaluated yet"
        mean, by_seed = f"mean {percent(self.accuracy.mean)}", self.accuracy.by_seed
        if self.accuracy.over_seeds is None:
            return f"{mean}, one seed"
        between = f"between seeds {100 * min(by_seed):.1f} to {percent(max(by_seed))}"
        return f"{mean}, {between}, 95 % over seeds {interval_over_seeds(self.accuracy)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """A group compared with the reference. `differs` are the keys in which they differ, each with its value here and in
    the reference. p-values are adjusted for the number of groups (statistics.holm)."""

    label: str
    place: int
    reference: str
    differs: Sequence[tuple[str, str, str]]
    comparison: Comparison
    p_items: float
    p_seeds: float | None

    @property
    def conclusion(self) -> str:
        """What the comparison says, in one sentence. A way of training is called better only where the seeds say so."""
        if self.p_seeds is None:
            differ = "differ significantly" if self.p_items < SIGNIFICANT else "do not differ significantly"
            why = "a group has one seed" if self.comparison.has_one_seed else "no accuracy varies with the seed"
            models = f"The models of {self.label} and {self.reference} {differ} on these items ({self.headline} points)"
            return f"{models}; {why}, so the seeds do not tell which way of training is better{self.cause}."
        if self.p_seeds < SIGNIFICANT:
            direction = "better" if self.comparison.difference > 0 else "worse"
            found = f"{self.label} is {direction} than {self.reference}, whatever the seed ({self.headline} points)"
            return f"{found}{self.cause}."
        found = f"The seeds do not tell whether {self.label} or {self.reference} is better ({self.headline} points)"
        return f"{found}{self.cause}."

    @property
    def cause(self) -> str:
        """What differs, as the end of a sentence that compares the two ways of training."""
        words = [
            f"{key.removesuffix('.type').rpartition('.')[2]} {here} instead of {there}"
            for key, here, there in self.differs
        ]
        return f": {', '.join(words)}" if words else ""

    @property
    def why_not_over_seeds(self) -> str:
        """Why nothing could be tested over seeds."""
        return "a group has one seed" if self.comparison.has_one_seed else "no accuracy varies with the seed"

    @property
    def css_class(self) -> str:
        """CSS class that colours the difference: "higher", "lower" or "open"."""
        if self.p_seeds is None or self.p_seeds >= SIGNIFICANT:
            return "open"
        return "higher" if self.comparison.difference > 0 else "lower"

    @property
    def headline(self) -> str:
        """The difference in percentage points."""
        return points(self.comparison.difference)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A run. `place` is the number of its group, from 0; `base` is the accuracy of its base model; `rewards` are the
    rewards of the first and the last step."""

    name: str
    place: int
    seed: int
    base: float | None
    accuracy: EvaluationResult | None
    rewards: tuple[float, float] | None
    steps: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualAnswers:
    """A response, whether it is right (None without a score), and how many of a group's models gave it."""

    response: str
    is_right: bool | None
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAnswers:
    """The responses of a group's models to an item: how many are right, how many have a score, and which they are."""

    label: str
    right: int
    models: int
    answers: Sequence[EqualAnswers]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlippedItem:
    """A held-out item that groups answered differently. `images` are data URIs; `kinds` are the classes by which the
    page filters: `gained-1` for an item that group 1 answers more often right than the reference, `lost-1`."""

    images: Sequence[str]
    question: str
    truth: str
    groups: Sequence[GroupAnswers]
    kinds: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonPage:
    """Everything that the page shows. `differing`: config key -> its value in each group. `seed_charts`: a chart for
    each run where there is one group of several runs."""

    mode: str
    num_items: int
    groups: Sequence[GroupRow]
    comparisons: Sequence[ComparisonRow]
    before_and_after: Chart
    charts: Sequence[Chart]
    seed_charts: Sequence[Chart]
    runs: Sequence[RunRow]
    differing: Mapping[str, Sequence[str]]
    items: Sequence[FlippedItem]
    remarks: Sequence[str]

    @property
    def title(self) -> str:
        """The names of the groups."""
        return " vs ".join(group.label for group in self.groups)

    def cells(self) -> list[list[str]]:
        """The figures of each group, in the order of COLUMNS; empty where there are none."""
        rows = {row.place: row for row in self.comparisons}
        return [_cells(group, rows.get(place)) for place, group in enumerate(self.groups)]

    def num_shown(self, kind: str) -> int:
        """How many of the shown items are of a kind, such as `gained-1`."""
        return sum(kind in item.kinds for item in self.items)


COLUMNS: Final = ("group", "seeds", "accuracy", "95 %, items", "95 %, seeds", "points", "p, items", "p, seeds")


def _cells(group: GroupRow, row: ComparisonRow | None) -> list[str]:
    found = group.accuracy
    accuracy = [percent(found.mean), " to ".join(map(percent, found.ci95))] if found else ["", ""]
    difference = [row.headline, f"{row.p_items:.3g}"] if row else ["", ""]
    over_seeds = f"{row.p_seeds:.3g}" if row and row.p_seeds is not None else ""
    seeds = ", ".join(map(str, group.seeds))
    return [group.label, seeds, *accuracy, interval_over_seeds(found), *difference, over_seeds]


def render_comparison(page: ComparisonPage) -> str:
    """The page as one self-contained HTML document, without scripts, other files and network access."""
    charts, seed_charts = (
        [(chart, draw(chart)) for chart in some if not chart.empty] for some in (page.charts, page.seed_charts)
    )
    return template("comparison.html.jinja").render(
        page=page,
        before_and_after=draw(page.before_and_after) if not page.before_and_after.empty else "",
        charts=charts,
        seed_charts=seed_charts,
        significant=SIGNIFICANT,
        rule=RULE,
    )
