"""Keeps the copy of a run up to date during training, in a thread.

The folder is the truth and the storage follows it. An outage is a warning and an event. What is missing is copied the
next time, since each time the records in the storage are compared with the records of the folder.
"""

import itertools
import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path

from rl_core.progress import LogEvent
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import Record, RunStore, TakenOver
from tasks.resuming.training_start import Chain
from tasks.storage.contents import PROGRESS, complete_checkpoints, is_of_training, progress_of, records_of_run

logger = logging.getLogger(__name__)


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


class Copier:
    """Copies a run's folder when asked to, one copy at a time; of requests that wait, the newest is carried out."""

    def __init__(self, store: RunStore, run: RunDirectory, *, log_event: LogEvent) -> None:
        self._store = store
        self._run = run
        self._log_event = log_event
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="storage")
        self._last: tuple[Future[None], _Snapshot] | None = None
        self._numbers = itertools.count()
        self._copied_step = 0
        self.failure: str | None = None
        """Why the last copy failed; None when it did not fail."""
        self.chain: Chain | None = None
        """The epochs of this run, once they are known."""

    def copy(self) -> None:
        """Request a copy of the run as it is now. Raises OSError when the run's folder cannot be read."""
        snapshot = self._snapshot()
        if self._last is not None:
            waiting, overtaken = self._last
            if waiting.cancel():
                overtaken.discard()
        self._last = self._thread.submit(snapshot.asked_in.run, self._carry_out, snapshot), snapshot

    def copy_checkpoints(self) -> None:
        """Request a copy if the run has a newer checkpoint than the last time. This is fast enough for every step."""
        checkpoints = complete_checkpoints(self._run)
        if checkpoints and checkpoints[-1].step != self._copied_step:
            self._copied_step = checkpoints[-1].step
            self.copy()

    def finish(self) -> None:
        """Copy the run at its end, and wait until the copy is done or has failed."""
        self.copy()
        self.wait()
        self._thread.shutdown()

    def wait(self) -> None:
        """Wait until all requests are done or have failed."""
        if self._last is not None:
            self._last[0].result()

    def _snapshot(self) -> _Snapshot:
        links = self._run.root / f".storage.tmp-{os.getpid()}" / f"{next(self._numbers)}"
        records = records_of_run(self._run)
        known = self._store.known()
        for record in records:
            for path, file in record.files.items():
                if file.sha256 not in known:
                    _link(self._run.root / path, links / path)
        return _Snapshot(records=records, root=self._run.root, links=links, chain=self.chain, asked_in=copy_context())

    def _carry_out(self, snapshot: _Snapshot) -> None:
        try:
            self._copy(snapshot)
        except Exception as error:  # noqa: BLE001 - every file system raises its own errors; training goes on
            self.failure = f"{type(error).__name__}: {error}"
            self._log_event("storage-failed", reason=self.failure)
            logger.warning("the run is not copied to its storage (%s); it is tried again", self.failure)
        else:
            self.failure = None
        finally:
            snapshot.discard()

    def _copy(self, snapshot: _Snapshot) -> None:
        try:
            self._store.claim()
        except TakenOver as other:
            logger.warning("%s: this process copies no more of it", other)
            return
        wanted = [record for record in snapshot.records if self._may_be_copied(record.name, snapshot)]
        for record in wanted:
            if self._store.records().get(record.name) != record:
                self._store.save(record, snapshot.locate)
                logger.info("copied to the storage: %s, %d bytes", record.name, record.num_bytes)
        names = {record.name for record in wanted}
        stale = [name for name in self._store.records() if is_of_training(name) and name not in names]
        self._store.drop(name for name in stale if self._may_be_copied(name, snapshot))

    def _may_be_copied(self, name: str, snapshot: _Snapshot) -> bool:
        """Training that has come further elsewhere is not replaced by an earlier state."""
        if not is_of_training(name):
            return True
        if snapshot.chain is None:
            return False
        ours = next((record for record in snapshot.records if record.name == PROGRESS), None)
        theirs = self._store.records().get(PROGRESS)
        return progress_of(theirs, snapshot.chain) <= progress_of(ours, snapshot.chain)


def _link(file: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, link)
    except OSError:  # two records have this file, or there are no hard links here: a change is copied the next time
        return
