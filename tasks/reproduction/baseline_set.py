"""A set of baselines, judged together: each by its published number and by its good runs. Imports neither Prefect nor
torch."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.evaluation.folder import read_evaluation
from rl_core.evaluation.regression import Drift, drift_from
from rl_core.evaluation.statistics import holm
from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.cache.reuse import standing_manifest
from tasks.cache.stages import stage_digests
from tasks.reproduction.good_runs import good_runs_before
from tasks.reproduction.run_verdict import judge_run, published_of
from tasks.reproduction.verdict import Verdict
from tasks.results.run_facts import RunFacts


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
    adjusted = iter(holm([drift.comparison.p_value for drift in drifts]))
    verdicts = [_adjusted(verdict, adjusted) for verdict in verdicts]
    for verdict in verdicts:
        if verdict.reproduction is not None:
            atomic_write_json(verdict.run.reproduction, verdict.to_json())
    return verdicts


def _adjusted(verdict: Verdict, p_values: Iterator[float]) -> Verdict:
    def adjusted(drift: Drift | None) -> Drift | None:
        if drift is None:
            return None
        comparison = dataclasses.replace(drift.comparison, p_value=next(p_values))
        return dataclasses.replace(drift, comparison=comparison)

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
