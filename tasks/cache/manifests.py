"""Manifests: the record of a finished stage, and whether it is what is wanted. They are the project's only cache.

See docs/architecture.md, "The run directory is the truth".
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from rl_core.digests import (
    FileRecord,
    RelativeName,
    digest_of,
    hash_file,
    hash_of_start,
    records_below,
    sealed,
    unsealed,
    wrong_size,
)
from rl_core.files import atomic_write_json, is_regular, read_json
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held
from tasks.cache.software import Software, differences, in_words, made_again
from tasks.cache.stages import Parts, stages_before, what_changed

GROWING_FILE = "metrics.jsonl"
"""The log that later epochs append to. A manifest covers the bytes that were there when its stage ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageManifest:
    """A finished stage.

    Attributes:
        digest: Digest of everything that it depends on (tasks.cache.stages).
        outputs: [path relative to the run's folder] -> file.
        result: Small JSON values that later stages and the report read.
        finished_at: UTC, ISO 8601.
        reused_from: Name of the run that made it; None when this run did.
        parts: The parts that the digest covers (tasks.cache.stages).
        software: What made it, and the stages before it (tasks.cache.software).
    """

    stage: str
    digest: str
    outputs: Mapping[RelativeName, FileRecord]
    result: Mapping[str, Any]
    seconds: float
    finished_at: str
    reused_from: str | None = field(default=None)
    parts: Mapping[str, str] = field(default_factory=dict)
    software: Software = field(default_factory=dict)


_MANIFEST: Final = TypeAdapter(StageManifest)


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedStage:
    """A stage as it would be made now, with the fields of a StageManifest."""

    name: str
    digest: str
    parts: Parts = field(default_factory=dict)
    software: Software = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Key of the stage's intermediate results, which are not used by other software."""
        return f"{self.digest}-{digest_of(dict(self.software))}"

    def is_outdated(self, own: StageManifest) -> str | None:
        """Why a stage of this run has to be made again, in words; None when it is valid, whatever made it."""
        if own.digest != self.digest:
            return what_changed(own.parts, self.parts)
        again = made_again(own.software, self.software)
        return f"other software has made {', '.join(again)} again" if again else None

    def why_not_taken(self, found: StageManifest) -> str | None:
        """Why a stage of this digest that another run has finished is not taken over, in words; None when it is."""
        changes = differences(found.software, self.software)
        return f"made by other software: {in_words(changes)}" if changes else None


def software_before(run: RunDirectory, parts: Parts) -> dict[str, Software]:
    """[stage] -> the software of the finished stages in a run that a stage of these parts reads."""
    found = {}
    for stage in stages_before(parts):
        epochs = manifests_of_epochs(run) if stage == "training" else []
        manifest = read_manifest(run, epochs[-1].stem if epochs else stage)
        if manifest is not None:
            found[stage] = manifest.software
    return found


def reached_target(epoch: StageManifest) -> bool:
    """Whether `trainer.stop_at` ended the training in this epoch."""
    return bool(epoch.result.get("reached_target"))


def manifests_of_epochs(run: RunDirectory) -> list[Path]:
    """The manifest files of all finished epochs, sorted by number: 999 comes before 1000."""
    found = run.stage_manifest("any").parent.glob("train-epoch-*.json")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))


def describe_outputs(root: Path, paths: Iterable[Path]) -> dict[str, FileRecord]:
    """Hash every file at or below `paths`; keys are relative to `root`. Raises FileNotFoundError."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"the stage should have written {path}")
        files += [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return records_below(root, sorted(files))


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics whose values JSON can represent: a skipped step has an infinite or NaN gradient norm."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def write_manifest(run: RunDirectory, manifest: StageManifest) -> None:
    """Write the manifest, whole or not at all. Raises RunLockLost when another process has taken the run's lock."""
    ensure_held(run.lock)
    path = run.stage_manifest(manifest.stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, sealed(_MANIFEST.dump_python(manifest, mode="json")))


def read_manifest(run: RunDirectory, stage: str) -> StageManifest | None:
    """Read the manifest of a stage; None when there is none, or when it is damaged."""
    try:
        return _MANIFEST.validate_python(unsealed(read_json(run.stage_manifest(stage))))
    except (OSError, ValueError):
        return None  # not written by write_manifest (it may name a file outside of the run): the stage is run again


def read_manifests(run: RunDirectory) -> list[StageManifest]:
    """The manifests of all finished stages, by their names."""
    names = sorted(path.stem for path in run.stage_manifest("any").parent.glob("*.json"))
    return [manifest for name in names if (manifest := read_manifest(run, name)) is not None]


def is_recorded(run: RunDirectory, stage: str, digest: str | None) -> bool:
    """Whether a stage of a run has a manifest with this digest. Its files are not looked at."""
    manifest = read_manifest(run, stage)
    return manifest is not None and manifest.digest == digest


def altered_output(root: Path, outputs: Mapping[str, FileRecord]) -> str | None:
    """A sentence about the first output that is missing or has changed; None when there is none."""
    for path, output in outputs.items():
        problem = _problem_of(root / path, output)
        if problem:
            return f"{path} {problem}"
    return None


def _problem_of(file: Path, output: FileRecord) -> str | None:
    try:
        grows = file.name == GROWING_FILE and is_regular(file) and file.stat().st_size > output.size
        if not grows and (problem := wrong_size(file, output)):
            return problem
        found = hash_of_start(file, output.size) if grows else hash_file(file)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found == output.sha256 else "was altered"
