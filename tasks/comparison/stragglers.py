"""The seeds of a group that stayed behind the others, and what their metrics show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from rl_core.evaluation.items import Mode
from rl_core.evaluation.result import summarise
from tasks.comparison.groups import RunGroup
from tasks.results.report_page import percent
from tasks.results.verdict import groups_without_spread

FAR: Final = 0.1
RULE: Final = (
    f"A seed stayed behind if its accuracy is lower than the median of the seeds by more than {FAR}, or if its run did "
    "not finish."
)

Metrics = Sequence[Mapping[str, Any]]
"""One mapping for each step."""

_EARLY: Final = 0.25
"""Share of the steps after which a policy that is certain already is certain early."""
_ENTROPY: Final = "actor/entropy"
_CLIPPED: Final = ("actor/clip_fraction_low", "actor/clip_fraction_high")


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """A seed that stayed behind, and why, in a sentence. `accuracy` is None where the run did not finish."""

    seed: int
    accuracy: float | None
    cause: str


def stragglers(group: RunGroup, mode: Mode) -> list[Straggler]:
    """The seeds that stayed behind by RULE, in ascending order."""
    accuracies = [(run, summarise(run.trained[mode]).accuracy) for run in group.evaluated]
    least = median(accuracy for _, accuracy in accuracies) - FAR if accuracies else 0.0
    others = [run.metrics for run, accuracy in accuracies if accuracy >= least]
    behind = [
        Straggler(seed=run.config.seed, accuracy=accuracy, cause=what_metrics_show(run.metrics, others))
        for run, accuracy in accuracies
        if accuracy < least
    ]
    failed = [
        Straggler(seed=seed, accuracy=None, cause=f"its run did not finish: {failure.splitlines()[0]}")
        for seed, failure in group.failures.items()
    ]
    return sorted([*behind, *failed], key=lambda straggler: straggler.seed)


def what_metrics_show(own: Metrics, others: Sequence[Metrics]) -> str:
    """What a run's metrics say compared with those of others, in a sentence; what was not logged is left out."""
    figures: list[tuple[Callable[[Metrics], float | None], str, Callable[[float], str]]] = [
        (_entropy_early, "entropy {} nats after a quarter of the steps", "{:.2f}".format),
        (_entropy_at_the_end, "{} nats at the end", "{:.2f}".format),
        (groups_without_spread, "{} of the last groups without spread", percent),
        (_largest_ratio, "ratios up to {}", "{:.3g}".format),
        (_clipped, "{} of the tokens clipped", percent),
    ]
    shown = []
    for figure, words, as_text in figures:
        value = figure(own)
        if value is not None:
            theirs = [found for other in others if (found := figure(other)) is not None]
            compared = f" (others {as_text(median(theirs))})" if theirs else ""
            shown.append(f"{words.format(as_text(value))}{compared}")
    if not shown:
        return "its metrics show no cause"
    lead = "its policy became certain too early: " if _is_certain_early(own, others) else "its metrics show "
    return lead + ", ".join(shown)


def _is_certain_early(own: Metrics, others: Sequence[Metrics]) -> bool:
    """Whether its entropy after a quarter of the steps is less than half of that of the other runs."""
    early = _entropy_early(own)
    theirs = [found for other in others if (found := _entropy_early(other)) is not None]
    return early is not None and bool(theirs) and early < median(theirs) / 2


def _values(metrics: Metrics, key: str) -> list[float]:
    return [record[key] for record in metrics if key in record]


def _entropy_early(metrics: Metrics) -> float | None:
    values = _values(metrics, _ENTROPY)
    return values[int(_EARLY * (len(values) - 1))] if values else None


def _entropy_at_the_end(metrics: Metrics) -> float | None:
    values = _values(metrics, _ENTROPY)
    return values[-1] if values else None


def _largest_ratio(metrics: Metrics) -> float | None:
    return max((record[key] for record in metrics for key in record if key.endswith("/ratio_max")), default=None)


def _clipped(metrics: Metrics) -> float | None:
    shares = [sum(record.get(key, 0.0) for key in _CLIPPED) for record in metrics if record.keys() & {*_CLIPPED}]
    return fmean(shares) if shares else None
