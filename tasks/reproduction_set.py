"""A set of baselines, judged together: each by its published number and by its good runs. Imports neither Prefect nor
torch."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rl_core.config.published import PublishedConfig
from rl_core.config.run import RunConfig
from rl_core.evaluation.folder import read_evaluation
from rl_core.evaluation.group_comparison import holm
from rl_core.evaluation.regression import Drift, Standing, drift_from, standing_of
from rl_core.evaluation.reproduction import Reproduction
from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.last_good import good_runs_before
from tasks.report_page import p_value, points
from tasks.reproduction import judge_run, published_of
from tasks.reuse import standing_manifest
from tasks.run_facts import RunFacts
from tasks.stages import stage_digests


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A baseline of a set.

    Attributes:
        name: What people call it.
        baseline: Its config as it is shipped.
        config: That of its run.
        run: Its run in this set.
        failure: Why that run did not finish; None when it did.
    """

    name: str
    baseline: RunConfig
    config: RunConfig
    run: RunDirectory
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a member came to.

    Attributes:
        name: The baseline's.
        run: Its run.
        published: What it was to reproduce.
        failure: Why there is no number; None when there is one.
        reproduction: The run and the published number; None without a number.
        drift: The run and the last good one; None when they could not be compared.
        drift_from_first: The run and the first good one, which a slow decline does not move; None when that is the last
            good one too, or when they could not be compared.
        last_good: Name of the last good run; None when there is none.
        remark: Why it could not be compared with the last or first good run; empty when it was, or when there is none.
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
    def standing(self) -> Standing | Literal["failed"]:
        """In words."""
        return "failed" if self.reproduction is None else standing_of(self.reproduction, self.drifts)

    @property
    def drifts(self) -> list[Drift]:
        """The comparisons with earlier good runs that there are."""
        return [drift for drift in (self.drift, self.drift_from_first) if drift is not None]

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look."""
        return self.standing != "good"

    @property
    def reasons(self) -> list[str]:
        """Sentences that say why it stands so; of a failure its first line."""
        if self.reproduction is None:
            return [(self.failure or "it did not finish").partition("\n")[0]]
        said = [*_against_published(self.reproduction), *self._against_good_runs()]
        return sorted(said, key=lambda reason: not reason.startswith(_WORSE))  # alarms come first

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "run": self.run.name,
            "standing": self.standing,
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


_WORSE = "significantly worse than"
_JUDGED = ("evaluate-base", "evaluate-trained", "report")


def is_finished(config: RunConfig, run: RunDirectory) -> bool:
    """Whether all that a verdict reads of a run stands."""
    try:
        digests = stage_digests(config)
    except ValueError:
        return False  # a file that the config names is not there: the run itself says so
    return all(standing_manifest(run, stage, digests[stage]) is not None for stage in _JUDGED)


def judge_set(members: Sequence[Member]) -> list[Verdict]:
    """Judge the members' runs and write each result into its run's folder, where the next set finds it.

    The p-values against the last and the first good runs are adjusted for their number (Holm), so that a set of many
    baselines raises no more false alarms than one of few. The first good run and not the best: the best of many was
    lucky, and what is compared with it would look worse than it is.
    """
    verdicts = [_judge(member) for member in members]
    drifts = [drift for verdict in verdicts for drift in verdict.drifts]
    adjusted = iter(holm([drift.p_value for drift in drifts]))
    verdicts = [_adjusted(verdict, adjusted) for verdict in verdicts]
    for verdict in verdicts:
        if verdict.reproduction is not None:
            atomic_write_json(verdict.run.reproduction, verdict.to_json())
    return verdicts


def _adjusted(verdict: Verdict, p_values: Iterator[float]) -> Verdict:
    def adjusted(drift: Drift | None) -> Drift | None:
        return drift and dataclasses.replace(drift, p_value=next(p_values))

    last, first = adjusted(verdict.drift), adjusted(verdict.drift_from_first)
    return dataclasses.replace(verdict, drift=last, drift_from_first=first)


def _judge(member: Member) -> Verdict:
    bare = Verdict(name=member.name, run=member.run, published=published_of(member.baseline), failure=member.failure)
    if member.failure is not None:
        return bare
    try:
        found = dataclasses.replace(bare, reproduction=judge_run(member.run, member.baseline))
        good = good_runs_before(member.run)
    except (ValueError, OSError) as error:
        return dataclasses.replace(bare, failure=f"its folder cannot be read: {error}")
    return _against(found, good) if good else found


def _against(verdict: Verdict, good: Sequence[RunDirectory]) -> Verdict:
    """The verdict with its comparisons; `good` are the earlier good runs, newest first."""
    verdict = dataclasses.replace(verdict, last_good=good[0].name)
    try:
        verdict = dataclasses.replace(verdict, drift=_drift(verdict.run, good[0]))
        first = _drift(verdict.run, good[-1]) if len(good) > 1 else None
    except (ValueError, OSError) as error:
        return dataclasses.replace(verdict, remark=f"{error}")
    return dataclasses.replace(verdict, drift_from_first=first)


def _drift(run: RunDirectory, earlier: RunDirectory) -> Drift:
    mode = RunFacts(run).config.evaluation.modes[0]
    before, now = (read_evaluation(one.evaluation("trained"))[mode] for one in (earlier, run))
    return drift_from(earlier.name, before, now)


def _against_published(found: Reproduction) -> Iterator[str]:
    if found.outcome == "not comparable":
        yield from (f"not comparable with the publication: {obstacle}" for obstacle in found.obstacles)
    elif found.band is not None:
        low, high = found.band
        words = {"reproduced": "reproduces", "above": "is above", "below": "is below"}[found.outcome]
        yield f"{found.accuracy:.3f} {words} the published {found.published:.2f} ({low:.3f} to {high:.3f})"


def _against_good_run(which: str, drift: Drift) -> str:
    low, high = drift.ci95
    return (
        f"{_WORSE if drift.is_drop else 'no significant drop from'} the {which} good run {drift.earlier}: "
        f"{points(drift.difference)} points ({points(low)} to {points(high)}, p {p_value(drift.p_value)})"
    )
