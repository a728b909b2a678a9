"""The result of one baseline of a set, with its reasons in words. Imports neither Prefect nor torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.reproduction import Drift, Reproduction, Status, baseline_status
from rl_core.run_directory import RunDirectory
from tasks.comparison.stragglers import Straggler
from tasks.results.report_page import p_value, points

_WORSE: Final = "significantly worse than"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineResult:
    """The result of a baseline, which has a run for each seed; `runs` and `failures` are by seed.

    Attributes:
        published: The published result that the runs were to reproduce.
        failures: [seed] -> why its run has no accuracy.
        reproduction: What the other runs say about the published number; None when there is no other run.
        drift: The runs compared with the last good runs; None when there are none, or when they could not be compared.
        drift_from_first: The runs compared with the first good runs, which shows a slow decline. None when the first
            good runs are also the last ones, or when they could not be compared.
        last_good: Names of the last good runs, one for each seed.
        remark: Why the runs could not be compared with the last or the first good runs; else empty.
        stragglers: The seeds whose runs finished and stayed behind the others.
    """

    name: str
    runs: Mapping[int, RunDirectory]
    published: PublishedConfig
    failures: Mapping[int, str] = field(default_factory=dict)
    reproduction: Reproduction | None = None
    drift: Drift | None = None
    drift_from_first: Drift | None = None
    last_good: tuple[str, ...] = ()
    remark: str = ""
    stragglers: Sequence[Straggler] = ()

    @property
    def status(self) -> Status | Literal["failed"]:
        """good, regressed, undecided or not comparable; failed where a run has no accuracy, whatever the others say."""
        if self.failures or self.reproduction is None:
            return "failed"
        return baseline_status(self.reproduction, self.drifts)

    @property
    def drifts(self) -> list[Drift]:
        """The comparisons with earlier good runs, as far as there are any."""
        return [drift for drift in (self.drift, self.drift_from_first) if drift is not None]

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look at the runs."""
        return self.status != "good"

    @property
    def accuracies(self) -> dict[int, float]:
        """[seed] -> accuracy of its trained model, of the runs that have one."""
        found = self.reproduction
        return dict(zip(found.seeds, found.trained.by_seed, strict=True)) if found else {}

    @property
    def reasons(self) -> list[str]:
        """Sentences that give the reasons of the status, alarms first; of a failure its first line."""
        failures = [self._failure(seed) for seed in self.failures]
        if self.reproduction is None:
            return failures
        behind = [f"seed {straggler.seed} stayed behind: {straggler.cause}" for straggler in self.stragglers]
        reasons = [*_against_published(self.reproduction), *self._against_good_runs(), *behind]
        return [*failures, *sorted(reasons, key=lambda reason: not reason.startswith(_WORSE))]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "runs": [
                {
                    "seed": seed,
                    "run": run.name,
                    "accuracy": self.accuracies.get(seed),
                    "failure": self.failures.get(seed),
                }
                for seed, run in self.runs.items()
            ],
            "status": self.status,
            "reasons": self.reasons,
            "reproduction": self.reproduction and self.reproduction.to_json(),
            "last_good": list(self.last_good),
            "drift": self.drift and self.drift.to_json(),
            "drift_from_first": self.drift_from_first and self.drift_from_first.to_json(),
        }

    def _failure(self, seed: int) -> str:
        first_line = self.failures[seed].partition("\n")[0]
        return first_line if len(self.runs) == 1 else f"seed {seed} has no result: {first_line}"

    def _against_good_runs(self) -> Iterator[str]:
        if self.drift is not None:
            yield _against_good("last", self.drift)
        elif not self.last_good:
            yield "there is no earlier good run of this recipe"
        if self.remark:
            which = "first good run" if self.drift else f"last good {_named(self.last_good)}"
            yield f"not comparable with the {which}: {self.remark}"
        if self.drift_from_first is not None:
            yield _against_good("first", self.drift_from_first)


def _against_published(found: Reproduction) -> Iterator[str]:
    if found.outcome == "not comparable":
        yield from (f"not comparable with the publication: {obstacle}" for obstacle in found.obstacles)
    elif found.band is not None:
        low, high = found.band
        words = "reproduces" if found.outcome == "reproduced" else "is below" if found.is_below else "is above"
        band = f"{words} the published {found.published:.2f} ({low:.3f} to {high:.3f}"
        one_seed = "; one seed" if len(found.seeds) == 1 else ""
        luck = ", but the seeds do not tell whether that is luck" if found.outcome == "undecided" else ""
        yield f"{_mean(found)} {band}{one_seed}){luck}"


def _mean(found: Reproduction) -> str:
    mean, over_seeds = f"{found.trained.mean:.3f}", found.trained.over_seeds
    if over_seeds is None:
        return mean
    return f"the mean {mean} of {len(found.seeds)} seeds (95 % over seeds {over_seeds[0]:.3f} to {over_seeds[1]:.3f})"


def _against_good(which: str, drift: Drift) -> str:
    low, high = drift.ci95
    judged = _WORSE if drift.is_drop else "no significant drop from"
    interval = f"{points(low)} to {points(high)}, p {p_value(drift.p_value)}, {_basis(drift)}"
    difference = f"{points(drift.comparison.difference)} points ({interval})"
    return f"{judged} the {which} good {_named(drift.earlier)}: {difference}"


def _basis(drift: Drift) -> str:
    """What the test rests on."""
    found = drift.comparison
    before, now = (f"{seeds} seeds" if seeds > 1 else "one seed" for seeds in found.seeds)
    if found.over_seeds is not None:
        return f"over seeds, {before} before and {now} now"
    if found.seeds == (1, 1):
        return "one seed each"
    if found.has_one_seed:
        return f"over items, {before} before and {now} now"
    return f"over items, since no accuracy varies with the seed, {before} before and {now} now"


def _named(runs: tuple[str, ...]) -> str:
    first, *others = runs
    if not others:
        return f"run {first}"
    return f"runs {first} and {len(others)} {'other' if len(others) == 1 else 'others'}"
