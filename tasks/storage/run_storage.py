"""The copy of a run during its flow: what is fetched from it, and how a thread keeps it up to date.

The folder is the truth and the storage follows it. An outage is a warning and an event. What is missing is copied the
next time, since each time the records in the storage are compared with the records of the folder.
"""

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from rl_core.config.run import RunConfig
from rl_core.config.stages import StorageConfig
from rl_core.progress import LogEvent
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record, RunStore, TakenOver
from tasks.cache.stages import Chain
from tasks.storage.contents import (
    PROGRESS,
    bring_settings,
    bring_stage,
    bring_training,
    complete_checkpoints,
    is_of_training,
    progress_of,
    records_of_run,
)

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_PREPARATION = "prepare"


VARIABLE = "SIGHTLINE_STORAGE"


def storage_settings(config: RunConfig) -> StorageConfig | None:
    """The storage settings, None without an address; that of the environment comes first, as machines differ."""
    address = os.environ.get(VARIABLE)
    if not address:
        return config.storage
    return (config.storage or StorageConfig(address=address)).model_copy(update={"address": address})


def run_store(settings: StorageConfig, run_name: str) -> RunStore:
    """The copy of a run. Raises ValueError where no installed package can open the address."""
    # Imported here: it loads fsspec, and most runs are not copied.
    from rl_core.storage.place import Place

    return RunStore(Place.at(settings.address).below(run_name), verify=settings.verify)


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """The run at one moment.

    Attributes:
        records: The records that should be in the storage.
        links: Folder with hard links to the files that are to be copied, so that they are not removed or replaced
            meanwhile: retention removes checkpoints, and the next epoch replaces the note of the last one.
        chain: The epochs of this run; None while they are not known, and training is not copied.
        asked_in: The context of the request, so that the thread's log messages belong to the same flow run.
    """

    records: Sequence[Record]
    root: Path
    links: Path
    chain: Chain | None
    asked_in: Context

    def locate(self, path: str) -> Path:
        """The file to read for a path of a record."""
        linked = self.links / path
        return linked if linked.is_file() else self.root / path

    def discard(self) -> None:
        """Remove the links."""
        shutil.rmtree(self.links, ignore_errors=True)


class RunStorage:
    """Fetches at the start of a stage, and copies after it. An outage of the storage does not affect the run's folder;
    it is logged as an event. Every method does nothing where there is no store."""

    def __init__(self, store: RunStore | None, run: RunDirectory, *, log_event: LogEvent) -> None:
        self._store = store
        self._run = run
        self._log_event = log_event
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="storage")
        self._last: tuple[Future[None], _Snapshot] | None = None
        self._numbers = itertools.count()
        self._copied_step = 0
        self._is_complete = True
        self._chain: Chain | None = None

    @classmethod
    def of_config(cls, config: RunConfig, run: RunDirectory, *, log_event: LogEvent) -> Self:
        """The copy that environment or config names. Raises ValueError where no package can open the address."""
        settings = storage_settings(config)
        return cls(run_store(settings, run.name) if settings else None, run, log_event=log_event)

    def bring_beginnings(self) -> None:
        """Fetch what is not here and a run needs first: the config, the files that it names, and the preparation."""
        if not self._run.config.is_file():
            self._tried("the config", lambda store: bring_settings(store, self._run))
        if not self._run.stage_manifest(_PREPARATION).is_file():
            self._tried(_PREPARATION, lambda store: bring_stage(store, self._run, _PREPARATION))

    def bring_stage(self, stage: str, digest: str) -> bool:
        """As `fetching.bring_stage`."""
        return bool(self._tried(stage, lambda store: bring_stage(store, self._run, stage, digest=digest)))

    def bring_training(self, chain: Chain, *, here: Callable[[], int]) -> None:
        """Fetch the training of this chain if the copy has come further than the step that `here` returns. Raises
        StorageDamaged or OSError where that cannot be fetched, since training would repeat these steps.
        """
        if self._store is None:
            return
        if self._tried("training", lambda store: store.records()) is not None:
            step = bring_training(self._store, self._run, chain, further_than=here())
            if step:
                self._log_event("storage-fetched", step=step)
        self._chain = chain

    def copy(self) -> None:
        """Request a copy of the run as it is now, by a thread; of requests that wait, the newest is carried out. Raises
        OSError when the run's folder cannot be read."""
        if self._store is None:
            return
        snapshot = self._snapshot(self._store)
        if self._last is not None:
            waiting, overtaken = self._last
            if waiting.cancel():
                overtaken.discard()
        self._last = self._thread.submit(snapshot.asked_in.run, self._carry_out, self._store, snapshot), snapshot

    def copy_checkpoints(self) -> None:
        """Request a copy if the run has a newer checkpoint than the last time. This is fast enough for every step."""
        checkpoints = [] if self._store is None else complete_checkpoints(self._run)
        if checkpoints and checkpoints[-1].step != self._copied_step:
            self._copied_step = checkpoints[-1].step
            self.copy()

    def close(self) -> None:
        """Copy the run at its end, and wait until the copy is done or has failed."""
        self.copy()
        self.wait()
        self._thread.shutdown()
        if not self._is_complete:
            logger.warning("the copy of %s is not complete; `sightline run --resume` completes it", self._run.name)

    def wait(self) -> None:
        """Wait until all copies that were requested are done or have failed."""
        if self._last is not None:
            self._last[0].result()

    def _tried(self, what: str, ask: Callable[[RunStore], Result]) -> Result | None:
        """The result of `ask`; None where there is no copy, or where it does not answer."""
        if self._store is None:
            return None
        try:
            return ask(self._store)
        except Exception as error:  # noqa: BLE001 - every file system raises its own errors; the stage is then made here
            reason = f"{type(error).__name__}: {error}"
            self._log_event("storage-failed", reason=reason)
            logger.warning("%s cannot be fetched from the storage (%s): the run goes on without", what, reason)
            return None

    def _snapshot(self, store: RunStore) -> _Snapshot:
        links = self._run.root / f".storage.tmp-{os.getpid()}" / f"{next(self._numbers)}"
        records = records_of_run(self._run)
        known = store.known()
        for record in records:
            for path, file in record.files.items():
                if file.sha256 not in known:
                    (links / path).parent.mkdir(parents=True, exist_ok=True)
                    # Two records may have this file, or there are no hard links here: a change is copied the next time.
                    with suppress(OSError):
                        os.link(self._run.root / path, links / path)
        return _Snapshot(records=records, root=self._run.root, links=links, chain=self._chain, asked_in=copy_context())

    def _carry_out(self, store: RunStore, snapshot: _Snapshot) -> None:
        try:
            _copy(store, snapshot)
        except Exception as error:  # noqa: BLE001 - every file system raises its own errors; training goes on
            self._is_complete = False
            reason = f"{type(error).__name__}: {error}"
            self._log_event("storage-failed", reason=reason)
            logger.warning("the run is not copied to its storage (%s); it is tried again", reason)
        else:
            self._is_complete = True
        finally:
            snapshot.discard()


def _copy(store: RunStore, snapshot: _Snapshot) -> None:
    try:
        store.claim()
    except TakenOver as other:
        logger.warning("%s: this process copies no more of it", other)
        return
    wanted = [record for record in snapshot.records if _may_be_copied(record.name, store, snapshot)]
    for record in wanted:
        if store.records().get(record.name) != record:
            store.save(record, snapshot.locate)
            logger.info("copied to the storage: %s, %d bytes", record.name, record.num_bytes)
    names = {record.name for record in wanted}
    stale = [name for name in store.records() if is_of_training(name) and name not in names]
    store.drop(name for name in stale if _may_be_copied(name, store, snapshot))


def _may_be_copied(name: str, store: RunStore, snapshot: _Snapshot) -> bool:
    """Training that has come further elsewhere is not replaced by an earlier state."""
    if not is_of_training(name):
        return True
    if snapshot.chain is None:
        return False
    ours = next((record for record in snapshot.records if record.name == PROGRESS), None)
    theirs = store.records().get(PROGRESS)
    return progress_of(theirs, snapshot.chain) <= progress_of(ours, snapshot.chain)
