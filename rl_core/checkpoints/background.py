"""Saves checkpoints in a thread, while the next step runs."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore, WriteState
from rl_core.digests import FileRecord

_logger = logging.getLogger(__name__)


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
