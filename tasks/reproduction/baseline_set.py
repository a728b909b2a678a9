"""A set of baselines, judged together: each by its published number and by its good runs. Imports neither Prefect nor
torch."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.config.loading import ConfigError
from rl_core.config.run import RunConfig
from rl_core.evaluation.reproduction import Drift, drift_from
from rl_core.evaluation.statistics import holm
from rl_core.files import atomic_write_json, read_json
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.comparison.groups import RunGroup
from tasks.comparison.stragglers import Straggler, stragglers
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.published_result import (
    FinishedRun,
    MeasuredRun,
    changes,
    judge_runs,
    published_of,
    read_finished,
    read_measured,
    trained_shares,
)
from tasks.results.run_facts import RunFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A baseline as it is shipped, the config of its runs, and the runs, and why they failed, by seed."""

    name: str
    baseline: RunConfig
    config: RunConfig
    runs: Mapping[int, RunDirectory]
    failures: Mapping[int, str] = field(default_factory=dict)


def judge_set(members: Sequence[Member]) -> list[BaselineResult]:
    """Judge the members' runs and write each result into the folders of its runs, where the next set finds it. A result
    with a run that has no accuracy is not written: it is no reference, and what was written before stands.

    A member is compared with the last and with the first good runs of its baseline. The p-values are adjusted for their
    number (Holm), so that a set of many baselines raises no more false alarms than a set of few. The first good runs
    are taken and not the best ones: the best of many were lucky, and any run would look worse beside them.
    """
    results = [_judge(member) for member in members]
    adjusted = iter(holm([drift.p_value for result in results for drift in result.drifts]))
    results = [_adjusted(result, adjusted) for result in results]
    for result in results:
        if not result.failures:
            for run in result.runs.values():
                atomic_write_json(run.reproduction, result.to_json())
    return results


def _adjusted(result: BaselineResult, p_values: Iterator[float]) -> BaselineResult:
    def adjusted(drift: Drift | None) -> Drift | None:
        return None if drift is None else dataclasses.replace(drift, p_value=next(p_values))

    last, first = adjusted(result.drift), adjusted(result.drift_from_first)
    return dataclasses.replace(result, drift=last, drift_from_first=first)


def _judge(member: Member) -> BaselineResult:
    measured, failures = _measured(member)
    found = BaselineResult(
        name=member.name,
        runs=dict(sorted(member.runs.items())),
        published=published_of(member.baseline),
        failures=dict(sorted(failures.items())),
    )
    if not measured:
        return found
    found = dataclasses.replace(found, reproduction=judge_runs(measured, member.baseline))
    if len(measured) > 1:
        found = dataclasses.replace(found, stragglers=_stragglers(list(measured.values())))
    return _against_good_runs(found, list(measured.values()))


def _stragglers(measured: Sequence[MeasuredRun]) -> list[Straggler]:
    runs = tuple(RunFacts(run.finished.run) for run in measured)
    return stragglers(RunGroup(label="", runs=runs), measured[0].finished.config.evaluation.modes[0])


def _measured(member: Member) -> tuple[dict[int, MeasuredRun], dict[int, str]]:
    """([seed] -> what its run measured, [seed] -> why its run has no accuracy), ascending."""
    measured: dict[int, MeasuredRun] = {}
    failures = dict(member.failures)
    for seed, run in sorted(member.runs.items()):
        if seed in failures:
            continue
        try:
            found = read_measured(run)
            if len(member.runs) > 1:
                read(run.metrics)  # which the page of the seeds shows
        except (ValueError, OSError) as error:
            failures[seed] = f"its folder cannot be read: {error}"
            continue
        first = next(iter(measured), seed)
        if found.trained.keys() != measured.get(first, found).trained.keys():
            failures[seed] = f"its model was asked other items than the model of seed {first}"
        else:
            measured[seed] = found
    return measured, failures


def _against_good_runs(result: BaselineResult, measured: Sequence[MeasuredRun]) -> BaselineResult:
    """Add the comparisons with the earlier good runs."""
    good = good_runs_before([run.finished for run in measured])
    if not good:
        return result
    result = dataclasses.replace(result, last_good=tuple(run.run.name for run in good[0]))
    try:
        result = dataclasses.replace(result, drift=_drift(measured, good[0]))
        first = _drift(measured, good[-1]) if len(good) > 1 else None
    except (ValueError, OSError) as error:
        return dataclasses.replace(result, remark=f"{error}")
    return dataclasses.replace(result, drift_from_first=first)


def _drift(measured: Sequence[MeasuredRun], earlier: Sequence[FinishedRun]) -> Drift:
    return drift_from({run.run.name: trained_shares(run) for run in earlier}, [run.trained for run in measured])


GoodRuns = tuple[FinishedRun, ...]
"""Runs that were judged together and are good, one for each seed."""


def good_runs_before(runs: Sequence[FinishedRun]) -> list[GoodRuns]:
    """The earlier good runs of the same recipe as `runs`, in groups as they were judged, newest first.

    Runs have the same recipe if their configs are equal except for the name and the keys that do not change the
    expected accuracy. The status of a run and the runs that it was judged with are read from its own folder
    (`RunDirectory.reproduction`), not from a database. A group that shares a run with `runs` is no earlier one.
    """
    own = {run.run.name for run in runs}
    found = [
        group
        for group in _good_runs(runs[0].run.root.parent)
        if _finished_at(group) < _finished_at(runs) and own.isdisjoint(run.run.name for run in group)
    ]
    newest_first = sorted(found, key=_finished_at, reverse=True)
    return [group for group in newest_first if not any(list(changes(run.config, runs[0].config)) for run in group)]


def _finished_at(runs: Sequence[FinishedRun]) -> str:
    return max(run.finished_at for run in runs)


def _good_runs(folder: Path) -> list[GoodRuns]:
    found: dict[tuple[str, ...], GoodRuns] = {}
    for path in folder.glob("*/reproduction.json"):
        try:
            record = dict(read_json(path))
            names = tuple(one["run"] for one in record["runs"])
            if names and record["status"] == "good" and names not in found:
                found[names] = tuple(read_finished(RunDirectory(folder / name)) for name in names)
        except (ConfigError, OSError, ValueError, TypeError, KeyError):
            continue  # a run lost its report, is damaged, or its config has keys that are no longer known
    return list(found.values())
