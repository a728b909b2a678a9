"""An overview of every run, from its folder alone: its status, accuracies, last step and age. Imports neither Prefect
nor torch. A folder that cannot be read affects only its own line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from rl_core.config.loading import ConfigError, load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.result import read_results
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import lock_owner
from tasks.attempts import noted
from tasks.cache.manifests import read_manifest

_LAST_BYTES = 1 << 16
"""The end of metrics.jsonl in which the last line is looked for."""


class RunStatus(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    UNFINISHED = "unfinished"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    CRASHED = "crashed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOverview:
    """The overview of a run. `remark` is the process that writes the run, why the run failed, or what cannot be read;
    `config` is None where it cannot be read, `step` before the first one, an accuracy before the evaluation,
    `finished_at` (UTC, ISO 8601) before the report."""

    run: RunDirectory
    status: RunStatus
    remark: str
    config: RunConfig | None
    base: float | None
    trained: float | None
    step: int | None
    written_at: datetime
    finished_at: str | None


def runs_below(runs_dir: Path) -> list[RunDirectory]:
    """The folders with a config, sorted by name. Hidden folders are left over from a removal that was killed."""
    found = (path.parent for path in sorted(runs_dir.glob("*/config.yaml")))
    return [RunDirectory(folder) for folder in found if not folder.name.startswith(".")]


def overviews(runs_dir: Path) -> Iterator[RunOverview]:
    """The overview of every run in a folder, sorted by name."""
    return map(overview, runs_below(runs_dir))


def overview(run: RunDirectory) -> RunOverview:
    """The overview of one run."""
    config, unreadable = _config_of(run)
    report = read_manifest(run, "report") if run.summary.is_file() else None
    status, remark = (RunStatus.UNREADABLE, unreadable) if unreadable else _status(run, is_finished=report is not None)
    try:
        owner = lock_owner(run.lock)
    except OSError as error:
        owner, status, remark = None, RunStatus.UNREADABLE, f"{error}"
    if owner is not None:
        status, remark = RunStatus.RUNNING, f"pid {owner}"
    return RunOverview(
        run=run,
        status=status,
        remark=remark,
        config=config,
        base=_accuracy(run, config, "base"),
        trained=_accuracy(run, config, "trained"),
        step=_last_step(run),
        written_at=_written_at(run),
        finished_at=report.finished_at if report else None,
    )


def _config_of(run: RunDirectory) -> tuple[RunConfig | None, str]:
    try:
        return load_config(run.config), ""
    except (ConfigError, OSError) as error:
        return None, f"{error}"


def _status(run: RunDirectory, *, is_finished: bool) -> tuple[RunStatus, str]:
    if is_finished:
        return RunStatus.FINISHED, ""
    try:
        last = noted(run)
        end, cause = last.get("end"), last.get("cause") or ""
    except ValueError as error:
        return RunStatus.UNREADABLE, f"{error}"
    match end:
        case "failed":
            return RunStatus.FAILED, f"{cause}".partition("\n")[0]
        case "interrupted" | "cancelled":
            return RunStatus(end), ""
        case None if last:
            return RunStatus.CRASHED, "its process is gone"
        case _:
            return RunStatus.UNFINISHED, ""


def _accuracy(run: RunDirectory, config: RunConfig | None, evaluated: str) -> float | None:
    if config is None:
        return None
    try:
        results = read_results(run.evaluation(evaluated))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # not evaluated yet, or damaged
    headline = results.get(config.evaluation.modes[0]) if config.evaluation.modes else None
    return headline.accuracy if headline else None


def _last_step(run: RunDirectory) -> int | None:
    try:
        with run.metrics.open("rb") as stream:
            stream.seek(max(0, run.metrics.stat().st_size - _LAST_BYTES))
            whole, _, _ = stream.read().rpartition(b"\n")
        step = json.loads(whole.rpartition(b"\n")[2])["step"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return step if isinstance(step, int) and step > 0 else None


def _written_at(run: RunDirectory) -> datetime:
    """The newest time of the top entries and the manifests, but not of the lock, which looking at a run writes."""
    newest = 0.0
    for path in (run.root, *run.root.glob("*"), *run.stage_manifest("any").parent.glob("*")):
        try:
            newest = max(newest, 0.0 if path in (run.lock, run.root) else path.lstat().st_mtime)
        except FileNotFoundError:
            continue
    return datetime.fromtimestamp(newest, UTC)
