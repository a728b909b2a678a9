"""Manifests: the record of a finished stage, and whether it is still valid. They are the project's only cache.

See docs/architecture.md, "The run directory is the truth".
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_core.files import atomic_write_json, hash_file, hash_files, is_regular, read_json, relative_name
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held

GROWING_FILE = "metrics.jsonl"
"""The log that later epochs append to. A manifest covers the bytes that were there when its stage ended."""

_BLOCK_BYTES = 1 << 20
_OWN_HASH = "sha256"


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """A file as a stage left it. `sha256` is the hash of its first `size` bytes."""

    sha256: str
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"a file cannot have {self.size} bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageManifest:
    """A finished stage.

    Attributes:
        stage: Name of the stage.
        digest: Digest of everything that the stage depends on (tasks.cache.stages).
        outputs: [path relative to the run's folder] -> file.
        result: Small JSON values that later stages and the report read.
        seconds: Wall time of the stage.
        finished_at: Time of its end (UTC, ISO 8601).
        reused_from: Name of the run that the stage was taken over from; None when this run made it.
        parts: The parts that the digest covers (tasks.cache.stage_parts).
        software: The software that made the stage (tasks.cache.software); empty for stages that compute nothing.
        made_from: [stage whose result it read] -> the lineage of that stage (tasks.cache.lineage).
    """

    stage: str
    digest: str
    outputs: Mapping[str, Output]
    result: Mapping[str, Any]
    seconds: float
    finished_at: str
    reused_from: str | None = field(default=None)
    parts: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    made_from: Mapping[str, str] = field(default_factory=dict)


def describe_outputs(root: Path, paths: Iterable[Path]) -> dict[str, Output]:
    """Hash every file at or below `paths`; keys are relative to `root`.

    Raises:
        FileNotFoundError: a path does not exist, so the stage did not write what it should have written.
    """
    files = sorted(file for path in paths for file in _files_at(path))
    return dict(zip((file.relative_to(root).as_posix() for file in files), _describe(files), strict=True))


def _describe(files: Sequence[Path]) -> list[Output]:
    sizes = [file.stat().st_size for file in files]
    return [Output(sha256=sha256, size=size) for sha256, size in zip(hash_files(files), sizes, strict=True)]


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics whose values JSON can represent: a step that was skipped because of its gradient has an infinite or
    NaN norm."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def write_manifest(run: RunDirectory, manifest: StageManifest) -> None:
    """Write the manifest, whole or not at all, with a hash of its own content. Raises RunLockLost when another process
    has taken the run's lock."""
    ensure_held(run.lock)
    path = run.stage_manifest(manifest.stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = dataclasses.asdict(manifest)
    atomic_write_json(path, record | {_OWN_HASH: _digest(record)})


def read_manifest(run: RunDirectory, stage: str) -> StageManifest | None:
    """Read the manifest of a stage; None when there is none, or when it is damaged."""
    try:
        record = dict(read_json(run.stage_manifest(stage)))
        if record.pop(_OWN_HASH) != _digest(record):
            return None
        outputs = {relative_name(path): Output(**output) for path, output in record.pop("outputs").items()}
        return StageManifest(outputs=outputs, **record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # not written by write_manifest (it may name a file outside of the run): the stage is run again


def is_recorded(run: RunDirectory, stage: str, digest: str | None) -> bool:
    """Whether a stage of a run has a manifest with this digest. Its files are not looked at."""
    manifest = read_manifest(run, stage)
    return manifest is not None and manifest.digest == digest


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def altered_output(root: Path, outputs: Mapping[str, Output]) -> str | None:
    """A sentence about the first output that is missing or has changed; None when all outputs are as the manifest
    says."""
    for path, output in outputs.items():
        problem = _problem_of(root / path, output)
        if problem:
            return f"{path} {problem}"
    return None


def _problem_of(file: Path, output: Output) -> str | None:
    if not is_regular(file):
        return "is missing"
    try:
        size = file.stat().st_size
        if size < output.size or (size > output.size and file.name != GROWING_FILE):
            return f"has {size} bytes instead of {output.size}"
        found = hash_file(file) if size == output.size else hash_of_start(file, output.size)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found == output.sha256 else "was altered"


def hash_of_start(file: Path, size: int) -> str:
    """SHA-256 of the first `size` bytes of a file, hexadecimal."""
    digest = hashlib.sha256()
    remaining = size
    with file.open("rb") as stream:
        while remaining and (block := stream.read(min(remaining, _BLOCK_BYTES))):
            digest.update(block)
            remaining -= len(block)
    return digest.hexdigest()


def _files_at(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    if not path.is_file():
        raise FileNotFoundError(f"the stage should have written {path}")
    return [path]
