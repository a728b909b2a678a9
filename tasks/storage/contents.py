"""The records of a run's copy, as the run's folder is at one moment, and what is fetched of them.

`settings`        the config, the files that it names, and the events
`stage-NAME`      a finished stage: its outputs and its manifest
`checkpoint-N`    a kept checkpoint
`progress`        the records of training that are in no finished epoch up to its newest checkpoint

Files are fetched to a temporary folder first, where their hashes are compared, so that an interruption changes nothing.
What fetches raises StorageDamaged where the copy is damaged, and OSError where the storage does not answer.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rl_core.checkpoints.manifest import MANIFEST_NAME, Checkpoint, DamagedCheckpoint, read_checkpoint
from rl_core.digests import FileRecord, file_digest, hash_of_start
from rl_core.files import files_below, replace_folder, scratch_folder
from rl_core.records.metrics_log import step_files
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record, RunStore, StorageDamaged
from tasks.cache.manifests import StageManifest, read_manifests
from tasks.cache.reuse import discard_stage, place_files, remove_paths
from tasks.cache.stages import Chain
from tasks.resuming.training_start import begun_epoch, started_file
from tasks.resuming.training_state import finish_taking_over

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
        Record(
            name=SETTINGS,
            facts={},
            files=_existing(run, run.config, run.amendments, run.events, *files_below(run.inputs)),
        ),
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
    loose = [
        path for path in (*steps, *files_below(run.tool_images)) if path.relative_to(run.root).as_posix() not in held
    ]
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


logger = logging.getLogger(__name__)


def bring_settings(store: RunStore, run: RunDirectory) -> bool:
    """Fetch a run's config, the files that it names, and the events. Returns whether there is a copy of the run."""
    record = store.records().get(SETTINGS)
    if record is None:
        return False
    run.root.mkdir(parents=True, exist_ok=True)
    with scratch_folder(run.root / "fetched") as folder:
        store.fetch(record.files, lambda path: folder / path)
        place_files(folder, run.root)
    return True


def bring_stage(store: RunStore, run: RunDirectory, stage: str, *, digest: str | None = None) -> bool:
    """Fetch a finished stage if the copy has it, with this digest if one is given. Returns whether it did."""
    record = store.records().get(stage_record(stage))
    if record is None or digest not in (None, record.facts["digest"]):
        return False
    with scratch_folder(run.root / "fetched") as folder:
        store.fetch(record.files, lambda path: folder / path)
        discard_stage(run, stage)
        place_files(folder, run.root)
    logger.info("%s: fetched from the storage, %d bytes", stage, record.num_bytes)
    return True


def bring_training(store: RunStore, run: RunDirectory, chain: Chain, *, further_than: int) -> int:
    """Fetch the training of this chain if the copy has come further than this machine: finished epochs, the newest
    checkpoint, the best one, and the records of all steps. The training in this run's folder is replaced. Returns the
    step that was fetched; 0 where there was nothing to fetch.
    """
    records = store.records()
    progress = records.get(PROGRESS)
    if progress is None or progress_of(progress, chain) <= further_than:
        return 0
    epochs = _finished_epochs(records, chain, until=int(progress.facts["step"]))
    logs = {path: file for record in (*epochs, progress) for path, file in record.files.items()}
    logs = {path: file for path, file in logs.items() if not path.startswith("checkpoints/")}
    with scratch_folder(run.taken) as folder:
        held = RunDirectory(folder)
        store.fetch(logs, lambda path: folder / path)
        step = _fetch_checkpoints(store, held, until=int(progress.facts["step"]))
        replace_folder(folder, run.taken)
    finish_taking_over(run)
    logger.info("training up to step %d was fetched from the storage", step)
    return step


def _finished_epochs(records: Mapping[str, Record], chain: Chain, *, until: int) -> list[Record]:
    """The chain's finished epochs up to a step. After an interrupted copy later ones may lack their metrics."""
    found: list[Record] = []
    for stage, digest in chain:
        record = records.get(stage_record(stage))
        if record is None or record.facts["digest"] != digest or record.facts["last_step"] > until:
            break
        found.append(record)
    return found


def _fetch_checkpoints(store: RunStore, held: RunDirectory, *, until: int) -> int:
    """Fetch the newest undamaged checkpoint and the best checkpoint. Returns the step of the newest."""
    checkpoints = [record for record in store.records().values() if record.name.startswith(CHECKPOINT)]
    newest_first = sorted(checkpoints, key=lambda record: -int(record.facts["step"]))
    candidates = [record for record in newest_first if record.facts["step"] <= until]
    damage: StorageDamaged | None = None
    for newest in candidates:
        try:
            store.fetch(newest.files, lambda path: held.root / path)
        except StorageDamaged as error:
            logger.warning("%s of the storage is damaged, an older one is fetched: %s", newest.name, error)
            remove_paths([held.checkpoints])
            damage = error
            continue
        _fetch_best(store, held, [one for one in candidates if one.facts["step"] <= newest.facts["step"]])
        return int(newest.facts["step"])
    raise damage or StorageDamaged(f"the storage should have a checkpoint of step {until}, and has none")


def _fetch_best(store: RunStore, held: RunDirectory, checkpoints: Iterable[Record]) -> None:
    """Fetch the best checkpoint, the earliest of equals, which evaluation and merge may need."""
    scored = [record for record in checkpoints if record.facts["validation_score"] is not None]
    if scored:
        best = max(scored, key=lambda record: (record.facts["validation_score"], -record.facts["step"]))
        store.fetch(best.files, lambda path: held.root / path)
