"""What a comparison shows, as plain values, and how it becomes one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_core.evaluation.comparison import Comparison, GroupAccuracy
from rl_core.evaluation.statistics import SIGNIFICANT
from tasks.results.report_charts import Chart, draw
from tasks.results.report_page import Accuracy, points, template


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRow:
    """A group: its name, its runs' seeds, and how it did; None where nothing of it was evaluated."""

    label: str
    seeds: Sequence[int]
    base: float | None
    accuracy: GroupAccuracy | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """A group against the reference. p-values are adjusted for the number of groups (statistics.holm)."""

    label: str
    place: int
    reference: str
    comparison: Comparison
    p_items: float
    p_seeds: float | None

    @property
    def conclusion(self) -> str:
        """One sentence."""
        direction = "better" if self.comparison.difference > 0 else "worse"
        if self.p_items >= SIGNIFICANT:
            return f"No significant difference between {self.label} and {self.reference}."
        models = f"The models of {self.label} are {direction} than those of {self.reference}"
        if self.p_seeds is None:
            return f"{models}; without repetitions nothing is known of other seeds."
        if self.p_seeds < SIGNIFICANT:
            return f"{models}, and so is the recipe, whatever the seed."
        return f"{models}; whether the recipe is, the seeds leave open."

    @property
    def css_class(self) -> str:
        """ "higher", "lower" or "open": the class that colours the difference."""
        if self.p_items >= SIGNIFICANT:
            return "open"
        return "higher" if self.comparison.difference > 0 else "lower"

    @property
    def headline(self) -> str:
        """The difference in percentage points."""
        return points(self.comparison.difference)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run. `place` is its group's, from 0; rewards are those of its first and last step."""

    name: str
    place: int
    seed: int
    accuracy: Accuracy | None
    rewards: tuple[float, float] | None
    steps: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A response, whether it is right, and how many of a group's models gave it."""

    response: str
    is_right: bool
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAnswers:
    """What a group's models said to an item: how many of them were right, and the different responses."""

    label: str
    right: int
    models: int
    said: Sequence[Said]


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
    """Everything on the page. `differing`: config key -> its value in each group."""

    mode: str
    num_items: int
    groups: Sequence[GroupRow]
    comparisons: Sequence[ComparisonRow]
    charts: Sequence[Chart]
    runs: Sequence[RunRow]
    differing: Mapping[str, Sequence[str]]
    items: Sequence[FlippedItem]
    remarks: Sequence[str]

    @property
    def title(self) -> str:
        """The groups' names."""
        return " vs ".join(group.label for group in self.groups)

    def num_shown(self, kind: str) -> int:
        """How many of the items that are shown are of a kind, such as `gained-1`."""
        return sum(kind in item.kinds for item in self.items)


def render_comparison(page: ComparisonPage) -> str:
    """The page as one self-contained HTML document: no script, no file beside it, nothing from the network."""
    charts = [(chart, draw(chart)) for chart in page.charts if not chart.empty]
    return template("comparison.html.jinja").render(page=page, charts=charts, significant=SIGNIFICANT)
