"""Removes runs by a rule, or of each the stages that were made again: first a plan, then its execution. Each run is
removed whole or not at all.

The files of a stage that was taken over are linked, so that two runs may share the bytes of a file; removing one of the
runs does not free them.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from rl_core.config.loading import ConfigError
from rl_core.files import remove_folder, sweep_temporaries
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked
from rl_core.wording import age
from tasks.cache.manifests import read_manifest
from tasks.cache.stages import config_digest
from tasks.housekeeping.overview import RunOverview, RunStatus, overview, overviews
from tasks.housekeeping.protection import ask_registry, reason_to_keep

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Which runs are to be removed.

    Attributes:
        older_than: Choose only runs that were not written to for longer than this.
        failed: Choose runs whose last attempt failed or was killed.
        superseded: Choose finished runs of a config and its files for which a later run has finished too.
        earlier: Choose runs with stages that were made again, and remove these alone, with which nothing else is lost.

    With neither `failed` nor `superseded`, every run that is old enough is chosen.
    """

    older_than: timedelta | None = None
    failed: bool = False
    superseded: bool = False
    earlier: bool = False

    def __post_init__(self) -> None:
        if not (self.failed or self.superseded or self.earlier or self.older_than is not None):
            raise ConfigError(
                "say which runs are to be removed: --failed, --superseded, --older-than 30d; or --earlier, which "
                "removes only the stages that were made again"
            )

    def choose(self, runs: Sequence[RunOverview], now: datetime) -> Iterator[tuple[RunOverview, str]]:
        """The chosen runs, each with the reason. A run that is running is never chosen."""
        successors = _successors(runs) if self.superseded else {}
        for run in runs:
            if run.status is RunStatus.RUNNING or (self.earlier and not run.run.earlier.is_dir()):
                continue
            reason = self._kind(run, successors)
            idle = now - run.written_at
            if reason is None or (self.older_than is not None and idle <= self.older_than):
                continue
            unchanged = f"unchanged for {age(idle)}" if idle > timedelta(minutes=1) else "changed just now"
            yield run, ", ".join(part for part in (reason, unchanged) if part)

    def _kind(self, run: RunOverview, successors: dict[str, str]) -> str | None:
        """Why a run like this is chosen; empty where all runs are chosen, None where it is not chosen."""
        if self.failed and run.status in (RunStatus.FAILED, RunStatus.CRASHED):
            return f"{run.status}"
        if run.run.name in successors:
            return f"superseded by {successors[run.run.name]}"
        return None if self.failed or self.superseded else ""


def rule_of(*, older_than: str, failed: bool, superseded: bool, earlier: bool) -> Rule:
    """The rule that a person asks for; an empty age is no age. Raises ConfigError for a rule without any condition."""
    least = parse_age(older_than) if older_than else None
    return Rule(older_than=least, failed=failed, superseded=superseded, earlier=earlier)


def parse_age(text: str) -> timedelta:
    """`12h`, `30d` or `8w`. Raises ConfigError for everything else."""
    match = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is no age: write hours, days or weeks as 12h, 30d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def _successors(runs: Sequence[RunOverview]) -> dict[str, str]:
    """Name of each finished run -> the newest finished run of the same experiment and config, where that is another."""
    finished = [run for run in runs if run.status is RunStatus.FINISHED and run.config is not None]
    newest: dict[tuple[str, str, str], RunOverview] = {}
    for run in sorted(finished, key=lambda run: run.finished_at or ""):
        newest[_identity(run)] = run
    pairs = ((run.run.name, newest[_identity(run)].run.name) for run in finished)
    return {name: successor for name, successor in pairs if successor != name}


def _identity(run: RunOverview) -> tuple[str, str, str]:
    assert run.config is not None, "only runs with a config are compared"
    report = read_manifest(run.run, "report")
    return run.config.experiment, config_digest(run.config), report.digest if report else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A run that the rule chose, and as what; `why` it was chosen, and why it is `kept` all the same, if it is. With
    `earlier` only its stages that were made again are meant."""

    found: RunOverview
    why: str
    kept: str | None = None
    earlier: bool = False

    @property
    def run(self) -> RunDirectory:
        """The run's folder."""
        return self.found.run

    @property
    def folder(self) -> Path:
        """The folder that is removed."""
        return self.run.earlier if self.earlier else self.run.root

    @property
    def name(self) -> str:
        """What is removed, as a person knows it."""
        return f"{self.run.name}/{self.folder.name}" if self.earlier else self.run.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    """What a cleaning would do, or did. `kept` are runs that the rule chose; `num_bytes` become free on the disk."""

    removed: Sequence[Choice]
    kept: Sequence[Choice]
    num_bytes: int


def plan_cleaning(runs_dir: Path, rule: Rule, now: datetime, *, in_use: dict[str, str]) -> Cleaning:
    """Plan what the rule removes. Nothing is changed."""
    runs = list(overviews(runs_dir))
    aliases = cache(ask_registry)
    choices = [
        Choice(
            found=run,
            why=why,
            kept=None if rule.earlier else reason_to_keep(run, runs, in_use=in_use, aliases=aliases),
            earlier=rule.earlier,
        )
        for run, why in rule.choose(runs, now)
    ]
    removed = [choice for choice in choices if choice.kept is None]
    return Cleaning(
        removed=removed,
        kept=[choice for choice in choices if choice.kept is not None],
        num_bytes=freed_bytes(choice.folder for choice in removed),
    )


def carry_out_cleaning(planned: Cleaning, runs_dir: Path) -> Cleaning:
    """Remove the runs of a plan, except runs that were started or changed since, and runs that cannot be removed.
    Returns the runs that were removed, and the runs that were kept, with the reasons."""
    with suppress(FileNotFoundError):  # another cleaning has done it
        sweep_temporaries(runs_dir)  # left over from a removal that was killed
    removed: list[Choice] = []
    kept = list(planned.kept)
    num_bytes = 0
    for choice in planned.removed:
        freed = freed_bytes([choice.folder])
        reason = _remove(choice)
        if reason is None:
            removed.append(choice)
            num_bytes += freed
        else:
            kept.append(replace(choice, kept=reason))
    return Cleaning(removed=removed, kept=kept, num_bytes=num_bytes)


def _remove(choice: Choice) -> str | None:
    """Remove the run's folder, or that of its earlier stages, locked meanwhile so that nobody starts it. Returns why
    that failed; None when it is removed."""
    run = choice.run
    try:
        with RunLock(run.lock):
            if overview(run).written_at != choice.found.written_at:
                return "somebody wrote to it in the meantime"
            remove_folder(choice.folder)
    except RunLocked as locked:
        return f"the process with pid {locked.owner} writes it"
    except OSError as error:
        return f"it cannot be removed: {error}"
    return None


_BLOCK_BYTES = 512
"""Unit of `st_blocks`, on every file system."""


def size_on_disk(folders: Iterable[Path]) -> int:
    """Bytes that the files in the folders take; a file with several links counts once."""
    return sum(_bytes_of(file) for file in {(file.st_dev, file.st_ino): file for file in _files(folders)}.values())


def freed_bytes(folders: Iterable[Path]) -> int:
    """Bytes that become free when the folders are removed: the bytes of files that have no link elsewhere."""
    names: dict[tuple[int, int], int] = {}
    files: dict[tuple[int, int], os.stat_result] = {}
    for file in _files(folders):
        key = (file.st_dev, file.st_ino)
        names[key] = names.get(key, 0) + 1
        files[key] = file
    return sum(_bytes_of(file) for key, file in files.items() if names[key] == file.st_nlink)


def _bytes_of(file: os.stat_result) -> int:
    return file.st_blocks * _BLOCK_BYTES


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """All files; a symbolic link counts as itself. A file that is removed meanwhile is left out."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    yield os.lstat(os.path.join(parent, name))  # noqa: PTH118 (twice as fast over many files)
                except FileNotFoundError:
                    continue
