"""The curves of the report: matplotlib drawings as inline SVG with the colours of the page's style sheet, whose values
a browser shows under the pointer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from typing import Any, Final
from xml.sax.saxutils import escape

from tasks.results.run_facts import spread

# Placeholders for custom properties of the style sheet. The page has a light and a dark theme, but matplotlib needs
# real colours, so these are replaced in the text of the drawing.
_THEME: Final[Mapping[str, str]] = {
    "#010101": "var(--series-1)",
    "#020202": "var(--series-2)",
    "#030303": "var(--series-3)",
    "#040404": "var(--series-4)",
    "#050505": "var(--series-5)",
    "#060606": "var(--series-6)",
    "#070707": "var(--muted)",
    "#080808": "var(--line)",
}
_TEXT, _GRID = "#070707", "#080808"
_SERIES_COLOURS = tuple(colour for colour in _THEME if colour not in (_TEXT, _GRID))
MOST_SERIES = len(_SERIES_COLOURS)
"""Number of lines that a chart has colours for."""
_SIZE_INCHES = (4.6, 2.5)
_SVG_DPI = 72  # that of matplotlib's SVG files, so that places on the figure are places in the file
_MARKERS_UP_TO = 12
_MOST_READINGS = 200
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "text.color": _TEXT,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-3, 5),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line with one value for each step, and the lower and upper ends of a band around it, if there is one. `points`
    are (step, value) that are drawn beside the line. A dashed line shows the one that it covers."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None
    points: Sequence[tuple[float, float]] = ()
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A curve card of the report, with one to six lines; without a point it is left out. `caption` is one sentence on
    how to read it. The unit "share" shows 0 to 1 as percent, "plain" the numbers. `bound` is a horizontal line with its
    label. `ticks` name the steps from 0 on, where these are no training steps."""

    title: str
    caption: str
    series: Sequence[Series]
    unit: str = "plain"
    bound: tuple[float, str] | None = None
    log: bool = False
    ticks: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(series.values for series in self.series)


def draw(chart: Chart) -> str:
    """The chart as an `<svg>` element. Text stays text, and equal charts give equal bytes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # The salt keeps the ids of clip paths different, since all charts are on one page.
    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": chart.title}):
        figure = Figure(figsize=_SIZE_INCHES, dpi=_SVG_DPI, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        _draw_on(axes, chart)
        text, undated = StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=undated)
    return _inline(text.getvalue(), chart.title).replace("</svg>", f"{_readings(axes, chart)}</svg>")


def _readings(axes: Any, chart: Chart) -> str:
    """Invisible strips over the drawing, one a step, each with the values at this step as the text that a browser shows
    under the pointer."""
    values = [dict(zip(series.steps, series.values, strict=True)) for series in chart.series]
    steps = spread(sorted({int(step) for at in values for step in at}), _MOST_READINGS)
    area = axes.get_window_extent()
    places = [float(axes.transData.transform((step, 1.0))[0]) for step in steps]
    edges = [area.x0, *((one + other) / 2 for one, other in pairwise(places)), area.x1]
    top = axes.figure.bbox.height - area.y1
    strips = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.0):.1f}" height="{area.height:.1f}">'
        f"<title>{escape(_reading(step, chart, values))}</title></rect>"
        for step, (left, right) in zip(steps, pairwise(edges), strict=True)
    ]
    return f'<g class="readings">{"".join(strips)}</g>'


def _reading(step: int, chart: Chart, values: Sequence[Mapping[float, float]]) -> str:
    lines = [
        f"{series.label}: {f'{at[step]:.1%}' if chart.unit == 'share' else f'{at[step]:.4g}'}"
        for series, at in zip(chart.series, values, strict=True)
        if step in at
    ]
    return "\n".join([chart.ticks[step] if chart.ticks else f"step {step}", *lines])


def _draw_on(axes: Any, chart: Chart) -> None:
    for colour, series in zip(_SERIES_COLOURS[: len(chart.series)], chart.series, strict=True):
        if series.band is not None:
            axes.fill_between(series.steps, *series.band, color=colour, alpha=0.16, linewidth=0)
        marker = "o" if len(series.values) <= _MARKERS_UP_TO else ""
        style = (0, (2, 2)) if series.is_dashed else "-"
        axes.plot(
            series.steps, series.values, color=colour, linewidth=1.7, linestyle=style, marker=marker, markersize=3.5
        )
        if series.points:
            axes.scatter(*zip(*series.points, strict=True), color=colour, alpha=0.55, s=16)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if chart.ticks:
        axes.margins(x=0.15)
        axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    else:
        axes.margins(x=0.02)
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
    if chart.unit == "share":
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    if chart.log:
        axes.set_yscale("log")
    if chart.bound is not None:
        value, label = chart.bound
        axes.axhline(value, color=_TEXT, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(label, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7.5)


def _inline(svg: str, title: str) -> str:
    """The `<svg>` element with the page's colours, without ids that several charts would share."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in _THEME.items():
        svg = svg.replace(colour, variable)
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
