"""A set of baselines, judged together: each by its published number and by its last good run. Imports neither Prefect
nor torch."""

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
from tasks.last_good import last_good_run
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
        last_good: Name of the last good run; None when there is none.
        remark: Why the two could not be compared; empty when they were, or when there is no earlier one.
    """

    name: str
    run: RunDirectory
    published: PublishedConfig
    failure: str | None = None
    reproduction: Reproduction | None = None
    drift: Drift | None = None
    last_good: str | None = None
    remark: str = ""

    @property
    def standing(self) -> Standing | Literal["failed"]:
        """In words."""
        return "failed" if self.reproduction is None else standing_of(self.reproduction, self.drift)

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look."""
        return self.standing != "good"

    @property
    def reasons(self) -> list[str]:
        """Sentences that say why it stands so; of a failure its first line."""
        if self.reproduction is None:
            return [(self.failure or "it did not finish").partition("\n")[0]]
        said = [*_against_published(self.reproduction), *self._against_last_good()]
        return said[::-1] if self.drift is not None and self.drift.is_drop else said  # the alarm comes first

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
        }

    def _against_last_good(self) -> Iterator[str]:
        if self.drift is not None:
            low, high = self.drift.ci95
            said = "significantly worse than" if self.drift.is_drop else "no significant drop from"
            yield (
                f"{said} the last good run {self.drift.earlier}: {points(self.drift.difference)} points "
                f"({points(low)} to {points(high)}, p {p_value(self.drift.p_value)})"
            )
        elif self.remark:
            yield f"not comparable with the last good run {self.last_good}: {self.remark}"
        else:
            yield "there is no earlier good run of this recipe"


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

    The p-values against the last good runs are adjusted for their number (Holm), so that a set of many baselines raises
    no more false alarms than one of few.
    """
    verdicts = [_judge(member) for member in members]
    drifts = [verdict.drift for verdict in verdicts if verdict.drift is not None]
    adjusted = iter(holm([drift.p_value for drift in drifts]))
    verdicts = [_adjusted(verdict, adjusted) for verdict in verdicts]
    for verdict in verdicts:
        if verdict.reproduction is not None:
            atomic_write_json(verdict.run.reproduction, verdict.to_json())
    return verdicts


def _adjusted(verdict: Verdict, p_values: Iterator[float]) -> Verdict:
    if verdict.drift is None:
        return verdict
    return dataclasses.replace(verdict, drift=dataclasses.replace(verdict.drift, p_value=next(p_values)))


def _judge(member: Member) -> Verdict:
    bare = Verdict(name=member.name, run=member.run, published=published_of(member.baseline), failure=member.failure)
    if member.failure is not None:
        return bare
    try:
        found = dataclasses.replace(bare, reproduction=judge_run(member.run, member.baseline))
        earlier = last_good_run(member.run)
    except (ValueError, OSError) as error:
        return dataclasses.replace(bare, failure=f"its folder cannot be read: {error}")
    return found if earlier is None else _against(found, earlier)


def _against(verdict: Verdict, earlier: RunDirectory) -> Verdict:
    mode = RunFacts(verdict.run).config.evaluation.modes[0]
    try:
        before, now = (read_evaluation(run.evaluation("trained"))[mode] for run in (earlier, verdict.run))
        drift = drift_from(earlier.name, before, now)
    except (ValueError, OSError) as error:
        return dataclasses.replace(verdict, last_good=earlier.name, remark=f"{error}")
    return dataclasses.replace(verdict, last_good=earlier.name, drift=drift)


def _against_published(found: Reproduction) -> Iterator[str]:
    if found.outcome == "not comparable":
        yield from (f"not comparable with the publication: {obstacle}" for obstacle in found.obstacles)
    elif found.band is not None:
        low, high = found.band
        words = {"reproduced": "reproduces", "above": "is above", "below": "is below"}[found.outcome]
        yield f"{found.accuracy:.3f} {words} the published {found.published:.2f} ({low:.3f} to {high:.3f})"
