"""The result of one baseline of a set, with its reasons in words. Imports neither Prefect nor torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_core.config.published import PublishedConfig
from rl_core.evaluation.reproduction import Drift, Reproduction, Status, baseline_status
from rl_core.run_directory import RunDirectory
from tasks.results.report_page import p_value, points

_WORSE: Final = "significantly worse than"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineResult:
    """The result of a baseline.

    Attributes:
        name: Name of the baseline.
        run: Folder of its run.
        published: The published result that the run was to reproduce.
        failure: Why the run has no accuracy; None when it has one.
        reproduction: What the run says of the published number; None when the run has no accuracy.
        drift: The run compared with the last good run; None when there is none, or when they could not be compared.
        drift_from_first: The run compared with the first good run, which shows a slow decline. None when the first good
            run is also the last one, or when they could not be compared.
        last_good: Name of the last good run; None when there is none.
        remark: Why the run could not be compared with the last or the first good run; else empty.
    """

    name: str
    run: RunDirectory
    published: PublishedConfig
    failure: str | None = None
    reproduction: Reproduction | None = None
    drift: Drift | None = None
    drift_from_first: Drift | None = None
    last_good: str | None = None
    remark: str = ""

    @property
    def status(self) -> Status | Literal["failed"]:
        """good, regressed, not comparable or failed."""
        return "failed" if self.reproduction is None else baseline_status(self.reproduction, self.drifts)

    @property
    def drifts(self) -> list[Drift]:
        """The comparisons with earlier good runs, as far as there are any."""
        return [drift for drift in (self.drift, self.drift_from_first) if drift is not None]

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look at the run."""
        return self.status != "good"

    @property
    def reasons(self) -> list[str]:
        """Sentences that give the reasons of the status; for a failure, its first line."""
        if self.reproduction is None:
            return [(self.failure or "it did not finish").partition("\n")[0]]
        said = [*_against_published(self.reproduction), *self._against_good_runs()]
        return sorted(said, key=lambda reason: not reason.startswith(_WORSE))  # alarms come first

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "run": self.run.name,
            "status": self.status,
            "reasons": self.reasons,
            "failure": self.failure,
            "reproduction": self.reproduction and self.reproduction.to_json(),
            "last_good": self.last_good,
            "drift": self.drift and self.drift.to_json(),
            "drift_from_first": self.drift_from_first and self.drift_from_first.to_json(),
        }

    def _against_good_runs(self) -> Iterator[str]:
        if self.drift is not None:
            yield _against_good_run("last", self.drift)
        elif self.last_good is None:
            yield "there is no earlier good run of this recipe"
        if self.remark:
            which = "first good run" if self.drift else f"last good run {self.last_good}"
            yield f"not comparable with the {which}: {self.remark}"
        if self.drift_from_first is not None:
            yield _against_good_run("first", self.drift_from_first)


def _against_published(found: Reproduction) -> Iterator[str]:
    if found.outcome == "not comparable":
        yield from (f"not comparable with the publication: {obstacle}" for obstacle in found.obstacles)
    elif found.band is not None:
        low, high = found.band
        words = {"reproduced": "reproduces", "above": "is above", "below": "is below"}[found.outcome]
        yield f"{found.accuracy:.3f} {words} the published {found.published:.2f} ({low:.3f} to {high:.3f}; one seed)"


def _against_good_run(which: str, drift: Drift) -> str:
    found = drift.comparison
    low, high = found.ci95
    judged = _WORSE if drift.is_drop else "no significant drop from"
    interval = f"{points(low)} to {points(high)}, p {p_value(found.p_value)}, one seed each"
    return f"{judged} the {which} good run {drift.earlier}: {points(found.difference)} points ({interval})"
