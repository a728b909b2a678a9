"""A set of baselines, judged together: each by its published number and by its good runs. Imports neither Prefect nor
torch."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.config.loading import ConfigError
from rl_core.config.run import RunConfig
from rl_core.evaluation.reproduction import Drift, drift_from
from rl_core.evaluation.statistics import holm
from rl_core.files import atomic_write_json, read_json
from rl_core.run_directory import RunDirectory
from tasks.comparison.groups import RunGroup
from tasks.comparison.stragglers import stragglers
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.published_result import changes, judge_runs, published_of
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
    are taken and not the best ones: the best of many were lucky, and any run would look worse compared with them.
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
        group = RunGroup(label="", runs=tuple(measured.values()))
        found = dataclasses.replace(found, stragglers=stragglers(group, group.runs[0].config.evaluation.modes[0]))
    return _against_good_runs(found, list(measured.values()))


def _measured(member: Member) -> tuple[dict[int, RunFacts], dict[int, str]]:
    """([seed] -> what its run measured, [seed] -> why its run has no accuracy), ascending."""
    measured: dict[int, RunFacts] = {}
    failures = dict(member.failures)
    for seed, run in sorted(member.runs.items()):
        if seed in failures:
            continue
        found = RunFacts(run)
        try:  # what is judged, and the metrics, which the page shows
            _ = found.finished_at, found.headline("base"), found.headline("trained"), found.shares, found.metrics
        except (ValueError, OSError) as error:
            failures[seed] = f"its folder cannot be read: {error}"
            continue
        first = next(iter(measured), seed)
        if found.shares.keys() != measured.get(first, found).shares.keys():
            failures[seed] = f"its model was asked other items than the model of seed {first}"
        else:
            measured[seed] = found
    return measured, failures


def _against_good_runs(result: BaselineResult, measured: Sequence[RunFacts]) -> BaselineResult:
    """Add the comparisons with the earlier good runs."""
    good = good_runs_before(measured)
    if not good:
        return result
    result = dataclasses.replace(result, last_good=tuple(run.run.name for run in good[0]))
    try:
        result = dataclasses.replace(result, drift=_drift(measured, good[0]))
        first = _drift(measured, good[-1]) if len(good) > 1 else None
    except (ValueError, OSError) as error:
        return dataclasses.replace(result, remark=f"{error}")
    return dataclasses.replace(result, drift_from_first=first)


def _drift(measured: Sequence[RunFacts], earlier: Sequence[RunFacts]) -> Drift:
    return drift_from({run.run.name: run.shares for run in earlier}, [run.shares for run in measured])


def good_runs_before(runs: Sequence[RunFacts]) -> list[tuple[RunFacts, ...]]:
    """The earlier good runs of the same recipe as `runs`, in groups as they were judged, newest first.

    Runs have the same recipe if their configs are equal except for the name and the keys that do not change the
    expected accuracy. The status of a run and the runs that it was judged with are read from its own folder
    (`RunDirectory.reproduction`), not from a database. A group that shares a run with `runs` is no earlier one.
    """
    own, finished_at, folder = {run.run.name for run in runs}, _finished_at(runs), runs[0].run.root.parent
    found: dict[tuple[str, ...], tuple[RunFacts, ...]] = {}
    for path in folder.glob("*/reproduction.json"):
        try:
            record = dict(read_json(path))
            names = tuple(one["run"] for one in record["runs"])
            if not names or record["status"] != "good" or not own.isdisjoint(names):
                continue
            group = tuple(RunFacts(RunDirectory(folder / name)) for name in names)
            if _finished_at(group) < finished_at and not any([*changes(run.config, runs[0].config)] for run in group):
                found[names] = group
        except (ConfigError, OSError, ValueError, TypeError, KeyError):
            continue  # a run lost its report, is damaged, or its config has keys that are no longer known
    return sorted(found.values(), key=_finished_at, reverse=True)


def _finished_at(runs: Sequence[RunFacts]) -> str:
    return max(run.finished_at for run in runs)
