"""A set of baselines, judged together: each by its published number and by its good runs. Imports neither Prefect nor
torch."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.evaluation.folder import read_evaluation
from rl_core.evaluation.reproduction import Drift, drift_from
from rl_core.evaluation.statistics import holm
from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.good_runs import good_runs_before
from tasks.reproduction.published_result import judge_run, published_of
from tasks.results.run_facts import RunFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A baseline of a set, and its run.

    Attributes:
        name: Name of the baseline.
        baseline: The config of the baseline as it is shipped.
        config: The config of the run.
        run: The run's folder.
        failure: Why the run did not finish; None when it did.
    """

    name: str
    baseline: RunConfig
    config: RunConfig
    run: RunDirectory
    failure: str | None = None


def judge_set(members: Sequence[Member]) -> list[BaselineResult]:
    """Judge the members' runs and write each result into its run's folder, where the next set finds it.

    A run is compared with the last and with the first good run of its baseline. The p-values are adjusted for their
    number (Holm), so that a set of many baselines raises no more false alarms than a set of few. The first good run is
    taken and not the best one: the best of many runs was lucky, and any run would look worse beside it.
    """
    results = [_judge(member) for member in members]
    drifts = [drift for result in results for drift in result.drifts]
    adjusted = iter(holm([drift.comparison.p_value for drift in drifts]))
    results = [_adjusted(result, adjusted) for result in results]
    for result in results:
        if result.reproduction is not None:
            atomic_write_json(result.run.reproduction, result.to_json())
    return results


def _adjusted(result: BaselineResult, p_values: Iterator[float]) -> BaselineResult:
    def adjusted(drift: Drift | None) -> Drift | None:
        if drift is None:
            return None
        comparison = dataclasses.replace(drift.comparison, p_value=next(p_values))
        return dataclasses.replace(drift, comparison=comparison)

    last, first = adjusted(result.drift), adjusted(result.drift_from_first)
    return dataclasses.replace(result, drift=last, drift_from_first=first)


def _judge(member: Member) -> BaselineResult:
    bare = BaselineResult(
        name=member.name, run=member.run, published=published_of(member.baseline), failure=member.failure
    )
    if member.failure is not None:
        return bare
    try:
        found = dataclasses.replace(bare, reproduction=judge_run(member.run, member.baseline))
        good = good_runs_before(member.run)
    except (ValueError, OSError) as error:
        return dataclasses.replace(bare, failure=f"its folder cannot be read: {error}")
    return _against(found, good) if good else found


def _against(result: BaselineResult, good: Sequence[RunDirectory]) -> BaselineResult:
    """Add the comparisons with the earlier good runs, which are `good`, newest first."""
    result = dataclasses.replace(result, last_good=good[0].name)
    try:
        result = dataclasses.replace(result, drift=_drift(result.run, good[0]))
        first = _drift(result.run, good[-1]) if len(good) > 1 else None
    except (ValueError, OSError) as error:
        return dataclasses.replace(result, remark=f"{error}")
    return dataclasses.replace(result, drift_from_first=first)


def _drift(run: RunDirectory, earlier: RunDirectory) -> Drift:
    mode = RunFacts(run).config.evaluation.modes[0]
    before, now = (read_evaluation(one.evaluation("trained"))[mode] for one in (earlier, run))
    return drift_from(earlier.name, before, now)
