"""The checkpoints of a run: each is saved whole or not at all; the newest ones and the best one are kept."""

import logging
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_core.checkpoints.manifest import (
    Checkpoint,
    CheckpointInfo,
    DamagedCheckpoint,
    read_checkpoint,
    verify,
    write_manifest,
)
from rl_core.digests import FileRecord
from rl_core.files import DiskFull, committed_folder, remove_folder, sweep_temporaries
from rl_core.progress import LogEvent

_logger = logging.getLogger(__name__)
_FOLDER = re.compile(r"step-(\d{6,})")

WriteState = Callable[[Path], Mapping[str, FileRecord]]
"""Writes a state into an empty folder. Returns the files that were hashed meanwhile, by their paths in the folder."""


class CheckpointStore:
    """Folders `step-NNNNNN` under `root`, each with a manifest of its files and their hashes.

    A folder counts only if it matches its manifest: sizes are compared when checkpoints are listed, hashes when one is
    returned for use. A damaged one is reported (log, and event `checkpoint-damaged`), and the next older complete one
    is used. The `save_limit` newest ones are kept, in addition to the best one by validation.
    """

    def __init__(self, root: Path, *, save_limit: int, log_event: LogEvent | None = None) -> None:
        self._root = root
        self._save_limit = save_limit
        self._log_event = log_event
        self._reported: set[Path] = set()

    def save(self, write: WriteState, *, info: CheckpointInfo) -> Checkpoint:
        """Save a checkpoint (`add`), and remove older ones only after that (`retain`)."""
        saved = self.add(write, info=info)
        self.retain(info.step)
        return saved

    def add(self, write: WriteState, *, info: CheckpointInfo) -> Checkpoint:
        """Save a checkpoint: what `write` writes into an empty folder, and `info`. It may run in a thread, while others
        read. Raises DiskFull if there is no room for another one as large as the newest; nothing was written then."""
        sweep_temporaries(self._root)
        self._check_room()
        folder = self._root / f"step-{info.step:06d}"
        with committed_folder(folder) as temporary:
            written = write(temporary)
            write_manifest(temporary, info, written=written)
        self._reported.discard(folder)
        return read_checkpoint(folder)

    def retain(self, step: int) -> None:
        """Remove the older checkpoints that need not be kept once `step` is saved, damaged ones, and all of later
        steps, from which the run did not continue."""
        self.prune(step)
        for folder, checkpoint in self._folders():
            if checkpoint is None or checkpoint.step > step:
                remove_folder(folder)

    def prune(self, step: int) -> None:
        """Remove what the save of `step` should have removed, in case the process was killed before it did."""
        past = [checkpoint for checkpoint in self.complete() if checkpoint.step <= step]
        kept = kept_checkpoints(past, self._save_limit)
        for checkpoint in past:
            if checkpoint not in kept:
                remove_folder(checkpoint.folder)

    def complete(self) -> list[Checkpoint]:
        """All checkpoints that are complete by manifest and file sizes, oldest first."""
        return [checkpoint for _, checkpoint in self._folders() if checkpoint is not None]

    def latest(self, *, until: float = math.inf) -> Checkpoint | None:
        """The newest checkpoint up to step `until` whose files have the recorded hashes; None if there is none."""
        return self._first_intact([checkpoint for checkpoint in self.complete()[::-1] if checkpoint.step <= until])

    def best(self) -> Checkpoint | None:
        """The one with the highest validation score, the earliest of equal ones; None if none was validated."""
        return self._first_intact(sorted(filter(_is_ranked, self.complete()), key=_rank))

    def _first_intact(self, candidates: Sequence[Checkpoint]) -> Checkpoint | None:
        for checkpoint in candidates:
            try:
                verify(checkpoint)
            except DamagedCheckpoint as damage:
                self._report(checkpoint.folder, damage)
            else:
                return checkpoint
        return None

    def _check_room(self) -> None:
        """Raises DiskFull. If the checkpoints still to come up to `save_limit`, the best and an unfinished one do not
        fit, a warning says so while there is time to make room."""
        complete = self.complete()
        if not complete:
            return
        size, free = complete[-1].num_bytes, shutil.disk_usage(self._root).free
        if free < size:
            raise DiskFull(self._root, bytes_needed=size, bytes_free=free)
        still_to_come = (self._save_limit + 2 - len(complete)) * size
        if free < still_to_come:
            _logger.warning(
                "the checkpoints in %s will need %d more bytes, but %d are free", self._root, still_to_come, free
            )

    def _folders(self) -> list[tuple[Path, Checkpoint | None]]:
        found = [path for path in self._root.glob("step-*") if _FOLDER.fullmatch(path.name) and path.is_dir()]
        return [(folder, self._read(folder)) for folder in sorted(found, key=_step_of)]

    def _read(self, folder: Path) -> Checkpoint | None:
        try:
            return _read_folder(folder)
        except DamagedCheckpoint as damage:
            self._report(folder, damage)
            return None

    def _report(self, folder: Path, damage: DamagedCheckpoint) -> None:
        if folder in self._reported:
            return
        self._reported.add(folder)
        _logger.warning("%s; an older checkpoint is used instead", damage)
        if self._log_event is not None:
            self._log_event("checkpoint-damaged", checkpoint=folder.name, reason=str(damage))


def _read_folder(folder: Path) -> Checkpoint:
    checkpoint = read_checkpoint(folder)
    if checkpoint.step != _step_of(folder):
        raise DamagedCheckpoint(f"{folder}: its manifest is of step {checkpoint.step}")
    return checkpoint


def kept_checkpoints(complete: Sequence[Checkpoint], save_limit: int) -> list[Checkpoint]:
    """Of `complete` (oldest first) the `save_limit` newest, the best by validation, and an interim one while it is the
    newest."""
    lasting = [checkpoint for checkpoint in complete if not checkpoint.info.interim]
    best = min(filter(_is_ranked, lasting), key=_rank, default=None)
    kept = [*lasting[-save_limit:], *complete[-1:], *([best] if best else [])]
    return [checkpoint for checkpoint in complete if checkpoint in kept]


def _is_ranked(checkpoint: Checkpoint) -> bool:
    return checkpoint.info.validation_score is not None and not checkpoint.info.interim


def _rank(checkpoint: Checkpoint) -> tuple[float, int]:
    """Sorts the best first, and the earliest first among equals."""
    score = checkpoint.info.validation_score
    assert score is not None, "only validated checkpoints are ranked"
    return -score, checkpoint.step


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


class BackgroundSaver:
    """Adds checkpoints to a store in a thread, at most one at a time. Older ones are removed in `wait`, by the caller's
    thread, in which the store is read too. `check` is called before the store is changed; it raises an error if this
    process may no longer write the run."""

    def __init__(self, store: CheckpointStore, *, check: Callable[[], None]) -> None:
        self._store = store
        self._check = check
        self._saving: Future[int] | None = None

    def begin(self, write: WriteState, *, info: CheckpointInfo) -> None:
        """Start to save a checkpoint, as `CheckpointStore.add`; an earlier one must have been waited for."""
        assert self._saving is None, "waited for"
        thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        # In the caller's context, so that messages of the thread belong to the same flow run.
        self._saving = thread.submit(copy_context().run, self._save, write, info)
        thread.shutdown(wait=False)  # the thread ends with this save

    def wait(self) -> None:
        """Wait for the save in progress, if there is one, and remove the checkpoints that need not be kept after it.
        Raises what the save raised."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        step = saving.result()
        self._check()
        self._store.retain(step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the save in progress. Its error is raised, unless the block itself has raised one."""
        if error is None:
            self.wait()
            return
        try:
            self.wait()
        except Exception:
            _logger.exception("the last checkpoint could not be saved either")

    def _save(self, write: WriteState, info: CheckpointInfo) -> int:
        def checked(folder: Path) -> Mapping[str, FileRecord]:
            written = write(folder)
            self._check()
            return written

        try:
            self._store.add(checked, info=info)
        except BaseException as error:
            error.add_note(f"This happened in the background, while the checkpoint of step {info.step} was written.")
            raise
        return info.step
