"""The contents of the report as plain values, and its HTML file."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import jinja2

from rl_core.evaluation.comparison import Comparison, GroupAccuracy
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import EvaluationResult, items_words
from rl_core.wording import duration
from tasks.results.report_charts import Chart, draw
from tasks.results.run_facts import StepAnswers
from tasks.results.worker_rows import Timeline, WorkerRow

_TEMPLATES = Path(__file__).parents[1] / "templates"
_LARGEST_IMAGE_SIDE = 320
_JPEG_QUALITY = 85

Outcome = Literal["higher", "lower", "open"]
"""Which way an accuracy went, by more than chance; `open` where that is not shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeShare:
    """Seconds of a stage or of a phase of a step. `note` says from which run a stage was taken over."""

    name: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseMemory:
    """The most memory of a phase of a step in GiB, as forecast and as measured; None where it is not known."""

    name: str
    forecast: float | None
    measured: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GalleryItem:
    """A held-out item, its images as data URIs, the responses of both models and of validations to it, and by its uid
    each image that tools have shown in these."""

    images: Sequence[str]
    shown: Mapping[str, str]
    base: EvaluationItem
    trained: EvaluationItem
    while_training: StepAnswers = ()

    @property
    def question(self) -> str:
        """Without the places of the images, which stand above it."""
        return self.base.question.replace("<image>", "").strip()

    @property
    def outcome(self) -> str:
        """ "gained", "lost", "right" or "wrong": the class by which the page filters."""
        if self.base.is_right == self.trained.is_right:
            return "right" if self.trained.is_right else "wrong"
        return "gained" if self.trained.is_right else "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A key figure: a label, its value as it is shown, and an explanation."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportPage:
    """Everything that the page shows."""

    run: str
    experiment: str
    finished_at: str
    base: EvaluationResult
    trained: EvaluationResult
    comparison: Comparison | None
    verdict: str
    outcome: Outcome
    look_at: Sequence[str]
    changes: Sequence[str]
    facts: Sequence[Fact]
    charts: Sequence[Chart]
    evaluations: Sequence[tuple[str, EvaluationResult]]
    stages: Sequence[TimeShare]
    phases: Sequence[TimeShare]
    memory: Sequence[PhaseMemory]
    losses: str
    workers: Sequence[WorkerRow]
    timeline: Timeline | None
    gallery: Sequence[GalleryItem]
    commands: Mapping[str, str]
    config: str
    versions: Mapping[str, str]


def render(page: ReportPage) -> str:
    """The page as one self-contained HTML document, without scripts, other files and network access."""
    charts = [(chart, draw(chart)) for chart in page.charts if not chart.empty]
    return template("report.html.jinja").render(page=page, charts=charts, shares=_shares, items_words=items_words)


def template(name: str) -> jinja2.Template:
    """Load a template, with the filters that the templates use."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": points, "p_value": p_value, "duration": duration}
    environment.filters |= {"interval_over_seeds": interval_over_seeds}
    return environment.get_template(name)


def percent(share: float) -> str:
    """0.9125 -> "91.2 %"."""
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """0.0125 -> "+1.2": a difference of shares in percentage points."""
    return f"{100 * difference:+.1f}"


def interval_over_seeds(accuracy: GroupAccuracy | None) -> str:
    """The 95 % interval over seeds, or "one seed"; empty without an accuracy."""
    if accuracy is None:
        return ""
    found = accuracy.over_seeds
    return f"{100 * found[0]:.1f} to {percent(found[1])}" if found else "one seed"


def p_value(value: float) -> str:
    """ "< 0.001", or "= 0.023"."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def image_uri(image: Any, *, largest: int = _LARGEST_IMAGE_SIDE) -> str:
    """A PIL image as a data URI, scaled so that no side is longer than `largest` pixels: PNG up to 320 pixels, JPEG
    above, where a photograph would be many times as large."""
    image = image.convert("RGB")
    image.thumbnail((largest, largest))
    buffer = BytesIO()
    form = "png" if max(image.size) <= _LARGEST_IMAGE_SIDE else "jpeg"
    image.save(buffer, format=form, optimize=True, **({"quality": _JPEG_QUALITY} if form == "jpeg" else {}))
    return f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _shares(times: Sequence[TimeShare]) -> list[tuple[TimeShare, float, float]]:
    """Each time with its share of the sum and the length of its bar, in percent; the longest bar fills the row."""
    total = sum(time.seconds for time in times) or 1.0
    longest = max((time.seconds for time in times), default=0.0) or 1.0
    return [(time, 100 * time.seconds / total, 100 * time.seconds / longest) for time in times]
