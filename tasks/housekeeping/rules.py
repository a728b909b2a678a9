"""The rules that choose runs for removal. Whether a chosen run must be kept is decided afterwards (protection)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rl_core.config.loading import ConfigError
from rl_core.wording import age
from tasks.cache.stages import config_digest
from tasks.housekeeping.overview import RunOverview, RunStatus

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Which runs are to be removed.

    Attributes:
        older_than: Choose only runs that were not written to for longer than this.
        failed: Choose runs whose last attempt failed or was killed.
        superseded: Choose finished runs of a config for which a later run has finished too.

    With neither `failed` nor `superseded`, every run that is old enough is chosen.
    """

    older_than: timedelta | None = None
    failed: bool = False
    superseded: bool = False

    def __post_init__(self) -> None:
        if not (self.failed or self.superseded or self.older_than is not None):
            raise ConfigError("say which runs are to be removed: --failed, --superseded, --older-than 30d")

    def choose(self, runs: Sequence[RunOverview], now: datetime) -> Iterator[tuple[RunOverview, str]]:
        """The chosen runs, each with the reason. A run that is running is never chosen."""
        successors = _successors(runs) if self.superseded else {}
        for run in runs:
            if run.status is RunStatus.RUNNING:
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


def rule_of(*, older_than: str, failed: bool, superseded: bool) -> Rule:
    """The rule that a person asks for; an empty age is no age. Raises ConfigError for a rule without any condition."""
    return Rule(older_than=parse_age(older_than) if older_than else None, failed=failed, superseded=superseded)


def parse_age(text: str) -> timedelta:
    """`12h`, `30d` or `8w`. Raises ConfigError for everything else."""
    match = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is no age: write hours, days or weeks as 12h, 30d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def _successors(runs: Sequence[RunOverview]) -> dict[str, str]:
    """Name of each finished run -> the newest finished run of the same experiment and config, where that is another."""
    finished = [run for run in runs if run.status is RunStatus.FINISHED and run.config is not None]
    newest: dict[tuple[str, str], RunOverview] = {}
    for run in sorted(finished, key=lambda run: run.finished_at or ""):
        newest[_identity(run)] = run
    pairs = ((run.run.name, newest[_identity(run)].run.name) for run in finished)
    return {name: successor for name, successor in pairs if successor != name}


def _identity(run: RunOverview) -> tuple[str, str]:
    assert run.config is not None, "only runs with a config are compared"
    return run.config.experiment, config_digest(run.config)
