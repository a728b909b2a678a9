"""The checkpoints of a run: saved whole or not at all, the newest ones and the best one kept."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rl_core.checkpoints.disk import check_room, free_bytes
from rl_core.checkpoints.manifest import (
    Checkpoint,
    CheckpointInfo,
    DamagedCheckpoint,
    read_checkpoint,
    verify,
    write_manifest,
)
from rl_core.events import LogEvent
from rl_core.files import committed_folder, remove_folder, sweep_temporaries

_logger = logging.getLogger(__name__)
_FOLDER = re.compile(r"step-(\d{6,})")


class CheckpointStore:
    """Folders `step-NNNNNN` under `root`, each with a manifest of its files and their hashes.

    A folder counts only if its manifest verifies: sizes wherever checkpoints are listed, hashes wherever one is handed
    out. A damaged one is reported (log, and event `checkpoint-damaged`) and the next older complete one is used. One
    process writes; it holds the run's lock.

    Args:
        root: Folder of the checkpoints; made at the first save.
        save_limit: Number of newest complete checkpoints that are kept; the best by validation is kept beside them.
        log_event: Takes the reports of damage.
    """

    def __init__(self, root: Path, *, save_limit: int, log_event: LogEvent | None = None) -> None:
        if save_limit < 1:
            raise ValueError(f"save_limit is {save_limit}; at least 1 checkpoint must be kept")
        self._root = root
        self._save_limit = save_limit
        self._log_event = log_event
        self._reported: set[Path] = set()

    def save(self, step: int, write: Callable[[Path], None], *, info: CheckpointInfo) -> Checkpoint:
        """Make the checkpoint of `step`; only when it is safely there are older ones removed.

        A run that saves step s stands at s: checkpoints of later steps (damaged, or of a future that was abandoned)
        are removed as well.

        Args:
            step: The last finished step.
            write: Writes the state into the empty folder that it is given.
            info: The rest of the state; its step is `step`.

        Raises:
            DiskFull: the newest checkpoint would not fit once more; nothing was written.
            OSError: the disk is full or failing; every earlier checkpoint is intact and no temporary is left.
        """
        if info.step != step:
            raise ValueError(f"the info of step {info.step} was given for the checkpoint of step {step}")
        sweep_temporaries(self._root)
        self._check_room()
        folder = self._folder(step)
        with committed_folder(folder) as temporary:
            write(temporary)
            write_manifest(temporary, info)
        self._reported.discard(folder)
        self._retain(step)
        return read_checkpoint(folder)

    def prune(self, step: int) -> None:
        """Remove the older checkpoints that the save of `step` removes; a process may have been killed between the
        two."""
        past = [checkpoint for checkpoint in self.complete() if checkpoint.step <= step]
        kept = kept_checkpoints(past, self._save_limit)
        for checkpoint in past:
            if checkpoint not in kept:
                remove_folder(checkpoint.folder)

    def complete(self) -> list[Checkpoint]:
        """Every complete checkpoint by manifest and file sizes, oldest first."""
        return [checkpoint for _, checkpoint in self._folders() if checkpoint is not None]

    def latest(self, *, until: float = math.inf) -> Checkpoint | None:
        """The newest checkpoint, of step `until` at most, whose files have the recorded hashes; None when there is
        none."""
        return self._first_intact([checkpoint for checkpoint in self.complete()[::-1] if checkpoint.step <= until])

    def best(self) -> Checkpoint | None:
        """The checkpoint with the highest validation score, the earliest of equals; None when none was validated."""
        return self._first_intact(sorted(filter(_is_ranked, self.complete()), key=_rank))

    def get(self, step: int) -> Checkpoint:
        """The checkpoint of `step`, hashes verified. Raises DamagedCheckpoint when it is missing or not intact."""
        checkpoint = _read_folder(self._folder(step))
        verify(checkpoint)
        return checkpoint

    def _folder(self, step: int) -> Path:
        return self._root / f"step-{step:06d}"

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
        """A new checkpoint is as large as the newest one. That this one fits decides; that the ones up to
        `save_limit`, the best and the next unfinished one will not is said in time to make room."""
        complete = self.complete()
        if not complete:
            return
        size = complete[-1].num_bytes
        check_room(self._root, size)
        still_to_come = (self._save_limit + 2 - len(complete)) * size
        free = free_bytes(self._root)
        if free < still_to_come:
            _logger.warning("checkpoints in %s will take %d more bytes, %d are free", self._root, still_to_come, free)

    def _retain(self, step: int) -> None:
        self.prune(step)
        for folder, checkpoint in self._folders():
            if checkpoint is None or checkpoint.step > step:
                remove_folder(folder)

    def _folders(self) -> list[tuple[Path, Checkpoint | None]]:
        """Each `step-NNNNNN` folder, by step, with its checkpoint if it is complete."""
        return [(folder, self._read(folder)) for folder in sorted(self._step_folders(), key=_step_of)]

    def _step_folders(self) -> Iterator[Path]:
        if self._root.is_dir():
            yield from (path for path in self._root.iterdir() if _FOLDER.fullmatch(path.name) and path.is_dir())

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
        _logger.warning("%s; an older checkpoint will be used", damage)
        if self._log_event is not None:
            self._log_event("checkpoint-damaged", checkpoint=folder.name, reason=str(damage))


def _read_folder(folder: Path) -> Checkpoint:
    checkpoint = read_checkpoint(folder)
    if checkpoint.step != _step_of(folder):
        raise DamagedCheckpoint(f"{folder}: its manifest speaks of step {checkpoint.step}")
    return checkpoint


def kept_checkpoints(complete: Sequence[Checkpoint], save_limit: int) -> list[Checkpoint]:
    """Those of `complete` (oldest first) that stay: the `save_limit` newest and the best by validation. An interim one
    stays beside them while it is the newest of all."""
    lasting = [checkpoint for checkpoint in complete if not checkpoint.info.interim]
    best = min(filter(_is_ranked, lasting), key=_rank, default=None)
    kept = [*lasting[-save_limit:], *complete[-1:], *([best] if best else [])]
    return [checkpoint for checkpoint in complete if checkpoint in kept]


def _is_ranked(checkpoint: Checkpoint) -> bool:
    return checkpoint.info.validation_score is not None and not checkpoint.info.interim


def _rank(checkpoint: Checkpoint) -> tuple[float, int]:
    """Sorts the best first, and the earliest of equals, so that a plateau does not push out what is protected."""
    score = checkpoint.info.validation_score
    assert score is not None, "only validated checkpoints are ranked"
    return -score, checkpoint.step


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))
