"""The records of a run's copy, as the run's folder is at one moment.

`settings`        the config, the files that it names, and the events
`stage-NAME`      a finished stage: its outputs and its manifest
`checkpoint-N`    a kept checkpoint
`progress`        the records of training that are in no finished epoch up to its newest checkpoint
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_core.checkpoints.manifest import MANIFEST_NAME, Checkpoint, DamagedCheckpoint, read_checkpoint
from rl_core.digests import FileRecord, file_digest, hash_of_start
from rl_core.files import files_below
from rl_core.records.metrics_log import step_files
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record
from tasks.cache.manifests import StageManifest, read_manifests
from tasks.cache.stages import Chain
from tasks.resuming.training_start import begun_epoch, started_file

SETTINGS = "settings"
PROGRESS = "progress"

CHECKPOINT = "checkpoint-"
_EPOCH = "stage-train-epoch-"


def stage_record(stage: str) -> str:
    """Name of the record of a finished stage."""
    return f"stage-{stage}"


def is_of_training(record: str) -> bool:
    """Whether a record is a part of training, whose parts belong together, and not a stage of its own."""
    return record == PROGRESS or record.startswith((CHECKPOINT, _EPOCH))


def progress_of(progress: Record | None, chain: Chain) -> int:
    """The step that training had reached when it was copied; 0 where it is another training than this chain."""
    if progress is None:
        return 0
    begun = progress.facts["begun"]
    return int(progress.facts["step"]) if begun is None or tuple(begun) in chain else 0


def records_of_run(run: RunDirectory) -> list[Record]:
    """The records, in the order in which they are copied: a record comes after the records that it refers to."""
    stages = [_stage(run, manifest) for manifest in read_manifests(run)]
    checkpoints = complete_checkpoints(run)
    return [
        Record(name=SETTINGS, facts={}, files=_existing(run, run.config, run.events, *files_below(run.inputs))),
        *stages,
        *(_checkpoint(run, checkpoint) for checkpoint in checkpoints),
        *_progress(run, checkpoints, stages),
    ]


def _stage(run: RunDirectory, manifest: StageManifest) -> Record:
    """The record of a stage, without checkpoints that retention has removed."""
    files = {
        path: output
        for path, output in manifest.outputs.items()
        if not path.startswith("checkpoints/") or (run.root / path).is_file()
    }
    files |= _existing(run, run.stage_manifest(manifest.stage))
    facts = {"digest": manifest.digest, "last_step": manifest.result.get("last_step")}
    return Record(name=stage_record(manifest.stage), facts=facts, files=files)


def _checkpoint(run: RunDirectory, checkpoint: Checkpoint) -> Record:
    folder = checkpoint.folder.relative_to(run.root).as_posix()
    files = {f"{folder}/{name}": file for name, file in checkpoint.files.items()}
    files |= _existing(run, checkpoint.folder / MANIFEST_NAME)
    score = None if checkpoint.info.interim else checkpoint.info.validation_score
    facts = {"step": checkpoint.step, "validation_score": score}
    return Record(name=f"{CHECKPOINT}{checkpoint.step:06d}", facts=facts, files=files)


def _progress(run: RunDirectory, checkpoints: Sequence[Checkpoint], stages: Sequence[Record]) -> Iterator[Record]:
    if not checkpoints:
        return
    newest = checkpoints[-1].step
    # An epoch that ends after the newest checkpoint is not fetched as finished (tasks.storage.fetching).
    held = {path for stage in stages if (stage.facts["last_step"] or 0) <= newest for path in stage.files}
    folders = (run.rollouts(0).parent, run.validation(0).parent)
    steps = [path for folder in folders for _, path in step_files(folder)]
    loose = [path for path in steps if path.relative_to(run.root).as_posix() not in held]
    begun = begun_epoch(run)
    facts = {"step": newest, "begun": [begun.name, begun.digest] if begun else None}
    yield Record(name=PROGRESS, facts=facts, files=_existing(run, run.metrics, run.timings, started_file(run), *loose))


def _existing(run: RunDirectory, *paths: Path) -> dict[str, FileRecord]:
    return {path.relative_to(run.root).as_posix(): _described(path) for path in paths if path.is_file()}


def _described(path: Path) -> FileRecord:
    """Size and hash of a file; of a log only its present bytes, since more are appended while it is copied."""
    size = path.stat().st_size
    sha256 = hash_of_start(path, size) if path.suffix == ".jsonl" else file_digest(path)
    return FileRecord(sha256=sha256, size=size)


def complete_checkpoints(run: RunDirectory) -> list[Checkpoint]:
    """The checkpoints whose files are there with their sizes, oldest first."""
    found = []
    for folder in run.checkpoints.glob("step-*"):
        try:
            found.append(read_checkpoint(folder))
        except (DamagedCheckpoint, NotADirectoryError):
            continue  # the store reports it where it is used
    return sorted(found, key=lambda checkpoint: checkpoint.step)
