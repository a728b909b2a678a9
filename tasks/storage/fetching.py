"""Fetches from the copy of a run what its folder on this machine lacks: the config, a finished stage, training.

Files are fetched to a temporary folder first, where their hashes are compared, so that an interruption changes nothing.
Every function raises StorageDamaged where the copy is damaged, and OSError where the storage does not answer.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from rl_core.digests import FileRecord
from rl_core.files import fsync_tree, link_or_copy, remove_folder, replace_folder, scratch_folder
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record, RunStore, StorageDamaged
from tasks.cache.manifests import manifests_of_epochs
from tasks.cache.reuse import discard_stage, remove_paths
from tasks.resuming.training_start import Chain, started_file
from tasks.storage.contents import PROGRESS, SETTINGS, checkpoint_records, progress_of, stage_record

logger = logging.getLogger(__name__)


def bring_settings(store: RunStore, run: RunDirectory) -> bool:
    """Fetch a run's config, the files that it names, and the events. Returns whether there is a copy of the run."""
    record = store.records().get(SETTINGS)
    if record is None:
        return False
    run.root.mkdir(parents=True, exist_ok=True)
    with scratch_folder(run.root / "fetched") as folder:
        store.fetch(record.files, lambda path: folder / path)
        _place(folder, run.root, record.files)
    return True


def bring_stage(store: RunStore, run: RunDirectory, stage: str, *, digest: str | None = None) -> bool:
    """Fetch a finished stage if the copy has it, with this digest if one is given. Returns whether it did."""
    record = store.records().get(stage_record(stage))
    if record is None or digest not in (None, record.facts["digest"]):
        return False
    with scratch_folder(run.root / "fetched") as folder:
        store.fetch(record.files, lambda path: folder / path)
        discard_stage(run, stage)
        _place(folder, run.root, record.files)
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
    logs = _files([*epochs, progress], checkpoints=False)
    with scratch_folder(run.fetched) as folder:
        held = RunDirectory(folder)
        store.fetch(logs, lambda path: folder / path)
        step = _fetch_checkpoints(store, held, until=int(progress.facts["step"]))
        replace_folder(folder, run.fetched)
    finish_fetching(run)
    logger.info("training up to step %d was fetched from the storage", step)
    return step


def finish_fetching(run: RunDirectory) -> None:
    """Replace this run's training by that in `fetched`, which goes last, so that a kill in between costs nothing."""
    if not run.fetched.is_dir():
        return
    started_file(run).unlink(missing_ok=True)
    remove_paths(manifests_of_epochs(run))
    remove_paths(run.checkpoints.glob("step-*"))
    RunLogs(run).cut_back(-1)
    paths = [path.relative_to(run.fetched).as_posix() for path in run.fetched.rglob("*") if path.is_file()]
    _place(run.fetched, run.root, paths)
    remove_folder(run.fetched)


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
    candidates = [
        record for record in checkpoint_records(list(store.records().values())) if record.facts["step"] <= until
    ]
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


def _files(records: Iterable[Record], *, checkpoints: bool) -> dict[str, FileRecord]:
    """The files of the records; where several records have a path, the file of the last record."""
    files = {path: file for record in records for path, file in record.files.items()}
    return {path: file for path, file in files.items() if checkpoints or not path.startswith("checkpoints/")}


def _place(source: Path, root: Path, paths: Iterable[str]) -> None:
    """Link or copy the files at `paths` from `source` to `root`. Files that refer to other files come last."""
    fsync_tree(source)
    for path in sorted(paths, key=lambda path: (path.startswith("stages/"), path.endswith("/manifest.json"), path)):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        link_or_copy(source / path, target)
