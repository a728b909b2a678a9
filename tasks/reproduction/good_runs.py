"""Finds the good runs of a baseline among the runs in the same folder. Imports neither Prefect nor torch."""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_core.config.loading import ConfigError
from rl_core.config.run import RunConfig
from rl_core.evaluation.reproduction import stored_status
from rl_core.files import read_json
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tasks.reproduction.published_result import changes
from tasks.results.run_facts import RunFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A run with a report, its config, and when the report was written (UTC, ISO 8601)."""

    run: RunDirectory
    config: RunConfig
    finished_at: str


def good_runs_before(run: RunDirectory) -> list[RunDirectory]:
    """The earlier good runs of the same recipe, newest first.

    Runs have the same recipe if their configs are equal except for the name and the keys that do not change the
    expected accuracy. The status of a run is read from its own folder (`RunDirectory.reproduction`), not from a
    database.

    Raises:
        ConfigError: the run's config is refused.
        FileNotFoundError: the run has no report.
    """
    ours = read_finished(run)
    good = [other for other in _good_runs(run) if other.finished_at < ours.finished_at]
    newest_first = sorted(good, key=lambda other: other.finished_at, reverse=True)
    return [other.run for other in newest_first if not list(changes(other.config, ours.config))]


def read_finished(run: RunDirectory) -> FinishedRun:
    """Read a finished run. Raises ConfigError where its config is refused, FileNotFoundError where it has no report."""
    manifest = read_manifest(run, "report")
    if manifest is None:
        raise FileNotFoundError(f"{run.name} is not finished: it has no report")
    return FinishedRun(run=run, config=RunFacts(run).config, finished_at=manifest.finished_at)


def _good_runs(run: RunDirectory) -> Iterator[FinishedRun]:
    for path in run.root.parent.glob("*/reproduction.json"):
        try:
            if path.parent != run.root and stored_status(dict(read_json(path))) == "good":
                yield read_finished(RunDirectory(path.parent))
        except (ConfigError, OSError, ValueError, TypeError):
            continue  # it lost its report, is damaged, or its config has keys that are no longer known
