"""Finds the good runs of a baseline among the runs in the same folder. Imports neither Prefect nor torch."""

from collections.abc import Sequence
from pathlib import Path

from rl_core.config.loading import ConfigError
from rl_core.files import read_json
from rl_core.run_directory import RunDirectory
from tasks.reproduction.finished_run import FinishedRun, read_finished
from tasks.reproduction.published_result import changes

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
