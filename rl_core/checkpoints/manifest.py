"""The manifest of a checkpoint: its place in the run, and its files with their hashes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from rl_core.digests import FileRecord, RelativeName, note_hash, records_below, sealed, unsealed, wrong_size
from rl_core.files import atomic_write_json, files_below, read_json

MANIFEST_NAME = "manifest.json"


class DamagedCheckpoint(ValueError):
    """A checkpoint's folder does not match its manifest; the message names the folder, the file and the difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointInfo:
    """The state after a step that the next one needs and that is not a tensor. All values are JSON.

    Attributes:
        validation_score: Larger is better; None if there was no validation.
        loader: The data loader's state.
        counters: Further numbers that the next step continues from (the weight of the KL term).
        model_only: Whether the optimizers' moments were left out, so that the run cannot continue exactly from here.
        interim: Whether it was written because of a stop, at a step that is not saved otherwise. It serves to continue
            from and has no other effect: it is never the best checkpoint, and the next save removes it.
    """

    step: int
    validation_score: float | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    model_only: bool = False
    interim: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A complete checkpoint: its folder, its place in the run, and its files by relative path."""

    folder: Path
    info: CheckpointInfo
    files: Mapping[str, FileRecord]

    @property
    def step(self) -> int:
        """The last finished training step."""
        return self.info.step

    @property
    def num_bytes(self) -> int:
        """Size of all its files."""
        return sum(record.size for record in self.files.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Manifest:
    info: CheckpointInfo
    files: Mapping[RelativeName, FileRecord]


_MANIFEST: Final = TypeAdapter(_Manifest)


def write_manifest(folder: Path, info: CheckpointInfo, *, written: Mapping[str, FileRecord]) -> None:
    """Write the manifest of `folder`, with every file below it and `info`. Files in `written` were hashed while they
    were written; the others are read."""
    paths = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    files = {**written, **records_below(folder, [path for name, path in paths.items() if name not in written])}
    for name, path in paths.items():
        note_hash(path.stat(), files[name].sha256)
    manifest = _Manifest(info=info, files={name: files[name] for name in paths})
    atomic_write_json(folder / MANIFEST_NAME, sealed(_MANIFEST.dump_python(manifest, mode="json")))


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a manifest and compare the sizes of its files, of which none is read. Raises DamagedCheckpoint."""
    path = folder / MANIFEST_NAME
    try:
        manifest = _MANIFEST.validate_python(unsealed(read_json(path)))
    except FileNotFoundError:
        raise DamagedCheckpoint(f"{folder}: there is no {MANIFEST_NAME}") from None
    except ValueError as error:
        raise DamagedCheckpoint(f"{path} cannot be used: {error}") from None
    for name, record in manifest.files.items():
        if problem := wrong_size(folder / name, record):
            raise DamagedCheckpoint(f"{folder}: {name} {problem}")
    return Checkpoint(folder=folder, info=manifest.info, files=manifest.files)


def verify(checkpoint: Checkpoint) -> None:
    """Read every file and compare its hash. Raises DamagedCheckpoint with the first file that differs."""
    found = records_below(checkpoint.folder, [checkpoint.folder / name for name in checkpoint.files])
    for name, record in checkpoint.files.items():
        if found[name] != record:
            raise DamagedCheckpoint(f"{checkpoint.folder}: the content of {name} is not what was written (SHA-256)")
