"""Fetches from the copy of a run what its folder on this machine lacks: the config, a finished stage, training.

Files are fetched to a temporary folder first, where their hashes are compared, so that an interruption changes nothing.
Every function raises StorageDamaged where the copy is damaged, and OSError where the storage does not answer.
"""

import logging
from collections.abc import Iterable, Mapping

from rl_core.files import replace_folder, scratch_folder
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record, RunStore, StorageDamaged
from tasks.cache.reuse import discard_stage, place_files, remove_paths
from tasks.cache.stages import Chain
from tasks.resuming.training_state import finish_taking_over
from tasks.storage.contents import CHECKPOINT, PROGRESS, SETTINGS, progress_of, stage_record

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
