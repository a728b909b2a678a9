"""Removes runs by a rule: first a plan, then its execution. Each run is removed whole or not at all."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from rl_core.files import remove_folder, sweep_temporaries
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked
from tasks.housekeeping.overview import RunOverview, overview, overviews
from tasks.housekeeping.protection import ask_registry, reason_to_keep
from tasks.housekeeping.rules import Rule
from tasks.housekeeping.sizes import freed_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A run that the rule chose, and as what; `why` it was chosen, and why it is `kept` all the same, if it is."""

    found: RunOverview
    why: str
    kept: str | None = None

    @property
    def run(self) -> RunDirectory:
        """The run's folder."""
        return self.found.run


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
        Choice(found=run, why=why, kept=reason_to_keep(run, runs, in_use=in_use, aliases=aliases))
        for run, why in rule.choose(runs, now)
    ]
    removed = [choice for choice in choices if choice.kept is None]
    return Cleaning(
        removed=removed,
        kept=[choice for choice in choices if choice.kept is not None],
        num_bytes=freed_bytes(choice.run.root for choice in removed),
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
        freed = freed_bytes([choice.run.root])
        reason = _remove(choice)
        if reason is None:
            removed.append(choice)
            num_bytes += freed
        else:
            kept.append(Choice(found=choice.found, why=choice.why, kept=reason))
    return Cleaning(removed=removed, kept=kept, num_bytes=num_bytes)


def _remove(choice: Choice) -> str | None:
    """Remove the run, locked meanwhile so that nobody starts it. Returns why that failed; None when it is removed."""
    run = choice.run
    try:
        with RunLock(run.lock):
            if overview(run).written_at != choice.found.written_at:
                return "somebody wrote to it in the meantime"
            remove_folder(run.root)
    except RunLocked as locked:
        return f"the process with pid {locked.owner} writes it"
    except OSError as error:
        return f"it cannot be removed: {error}"
    return None
