"""Reasons to keep a run that a rule chose for removal: something else would be lost with it.

Only whether its merged model has an alias in MLflow's registry is not in a run's folder. Where that cannot be found
out, the run stays.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.digests import FileRecord
from rl_core.files import lies_below
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, altered_output, read_manifest
from tasks.housekeeping.overview import RunOverview

_SQLITE = "sqlite:///"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Registered:
    """The registry's answer for an experiment: [run name] -> aliases, mostly empty, or why the registry could not be
    asked."""

    aliases: Mapping[str, list[str]]
    trouble: str | None = None


@dataclass
class Champions:
    """Looks up aliases of merged models in the registries of runs, each once for an experiment."""

    _known: dict[tuple[str, str], _Registered] = field(default_factory=dict)

    def reason_to_keep(self, run: RunOverview) -> str | None:
        """Why the run must stay, a sentence; None for a run whose model certainly has no alias."""
        if not _has_merged_model(run.run):
            return None
        if run.config is None:
            return "it has a merged model, which may be a champion, and its config cannot be read"
        address = run.config.tracking.mlflow_address
        if address is None:
            return None
        found = self._asked(address, run.config.experiment)
        if found.trouble:
            return f"it cannot be found out whether its model is a champion: {found.trouble}"
        if run.run.name not in found.aliases:
            return f"its model is not in the registry of {redact(address)}, where a champion would be"
        aliases = found.aliases[run.run.name]
        return f"its model has the alias {', '.join(aliases)}" if aliases else None

    def _asked(self, address: str, experiment: str) -> _Registered:
        key = (address, experiment)
        if key not in self._known:
            self._known[key] = _ask(address, experiment)
        return self._known[key]


def _has_merged_model(run: RunDirectory) -> bool:
    return run.merged_model.is_dir() or read_manifest(run, "merge") is not None


def _ask(address: str, experiment: str) -> _Registered:
    # MLflow would create a missing database, which would have no champion.
    if address.startswith(_SQLITE) and not Path(address.removeprefix(_SQLITE)).is_file():
        return _Registered(aliases={}, trouble=f"there is no database {redact(address)}")
    # Imported here: MLflow takes two seconds to import, and most runs that are removed have no merged model.
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_registry import ModelRegistry
    from rl_core.tracking.tracker import TrackerUnavailable

    try:
        return _Registered(aliases=ModelRegistry(MlflowAccess(address), experiment).aliases_of_runs())
    except TrackerUnavailable as outage:
        return _Registered(aliases={}, trouble=f"{outage}")


@dataclass(kw_only=True)
class Protection:
    """Decides which of the chosen runs must be kept. `runs` are all runs, not only the chosen ones; `in_use` says of a
    run's name why it is still needed."""

    runs: Sequence[RunOverview]
    in_use: dict[str, str] = field(default_factory=dict)
    champions: Champions = field(default_factory=Champions)

    def reason_to_keep(self, run: RunOverview) -> str | None:
        """Why the run must be kept, a sentence; None when it may be removed."""
        if run.run.name in self.in_use:
            return self.in_use[run.run.name]
        if _is_good_baseline(run.run):
            return "it is a good run of its baseline, which later ones are compared with"
        others = [other.run for other in self.runs if other.run.root != run.run.root]
        return next(_needed_by(run.run, others), None) or self.champions.reason_to_keep(run)


def _is_good_baseline(run: RunDirectory) -> bool:
    """Whether it is a good run of its baseline. A record that cannot be read counts as good, since it may have been
    so."""
    try:
        record = json.loads(run.reproduction.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return not isinstance(record, dict) or record.get("status") == "good"


def _needed_by(run: RunDirectory, others: Sequence[RunDirectory]) -> Iterator[str]:
    named = re.compile(rf"(?<![\w.-]){re.escape(run.name)}(?![\w-])")
    for other in others:
        if named.search(_text(other.config)):
            yield f"the config of {other.name} names it"
        if link := _link_into(run, other):
            yield f"{other.name} has a symbolic link into it ({link})"
        for manifest in _taken_from(run, other):
            if problem := _would_lose(run, other, manifest):
                yield f"{other.name} took {manifest.stage} over from it and has no intact copy: {problem}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # a config that cannot be read cannot use another run


def _link_into(run: RunDirectory, other: RunDirectory) -> str | None:
    for parent, folders, files in os.walk(other.root):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and lies_below(path, run.root):
                return path.relative_to(other.root).as_posix()
    return None


def _taken_from(run: RunDirectory, other: RunDirectory) -> list[StageManifest]:
    names = sorted(path.stem for path in other.stage_manifest("any").parent.glob("*.json"))
    found = (read_manifest(other, name) for name in names)
    return [manifest for manifest in found if manifest is not None and manifest.reused_from == run.name]


def _would_lose(run: RunDirectory, other: RunDirectory, manifest: StageManifest) -> str | None:
    """A file that the other run took over and would lose, as a sentence; None where there is none. A linked file is not
    lost: its bytes stay until the last link is removed."""
    own = {
        path: output
        for path, output in manifest.outputs.items()
        if not _is_pruned(other, manifest, path) and not _linked(run, other, path, output)
    }
    return altered_output(other.root, own)


def _is_pruned(other: RunDirectory, manifest: StageManifest, path: str) -> bool:
    """Whether the file is a checkpoint of an epoch that is not the last one: retention removes these on purpose."""
    if not path.startswith("checkpoints/"):
        return False
    epochs = other.stage_manifest("any").parent.glob("train-epoch-*.json")
    return manifest.stage != max((epoch.stem for epoch in epochs), default=manifest.stage)


def _linked(run: RunDirectory, other: RunDirectory, path: str, output: FileRecord) -> bool:
    try:
        theirs = (other.root / path).lstat()
        return theirs.st_size == output.size and os.path.samestat(theirs, (run.root / path).lstat())
    except OSError:
        return False
