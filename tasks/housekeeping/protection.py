"""Reasons to keep a run that a rule chose for removal: something else would be lost with it."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.digests import FileRecord
from rl_core.files import lies_below
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, altered_output, read_manifest
from tasks.housekeeping.champions import Champions
from tasks.housekeeping.overview import RunOverview


@dataclass(kw_only=True)
class Protection:
    """Decides which of the chosen runs must be kept.

    Attributes:
        runs: All runs, not only the chosen ones.
        in_use: [name of a run] -> why it is still needed.
        champions: Looks up aliases in MLflow's registry.
    """

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
    """Whether it is a good run of its baseline. A record that cannot be read counts as good, since it may have said
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
