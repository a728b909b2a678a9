"""The copy of a run during its flow: what is fetched from it, and when it is updated."""

import logging
from collections.abc import Callable
from typing import Self, TypeVar

from rl_core.config.run import RunConfig
from rl_core.progress import LogEvent
from rl_core.run_directory import RunDirectory
from rl_core.storage.store import RunStore
from tasks.resuming.training_start import Chain
from tasks.storage.address import run_store, storage_settings
from tasks.storage.copying import Copier
from tasks.storage.fetching import bring_settings, bring_stage, bring_training

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_PREPARATION = "prepare"


class RunStorage:
    """Fetches at the start of a stage, and copies after it. An outage of the storage does not affect the run's folder;
    it is logged as an event. Every method does nothing where there is no store."""

    def __init__(self, store: RunStore | None, run: RunDirectory, *, log_event: LogEvent) -> None:
        self._store = store
        self._run = run
        self._log_event = log_event
        self._copier = Copier(store, run, log_event=log_event) if store else None

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
        if self._store is None or self._copier is None:
            return
        if self._tried("training", lambda store: store.records()) is not None:
            step = bring_training(self._store, self._run, chain, further_than=here())
            if step:
                self._log_event("storage-fetched", step=step)
        self._copier.chain = chain

    def copy(self) -> None:
        """Request an update of the copy, in the background."""
        if self._copier is not None:
            self._copier.copy()

    def copy_checkpoints(self) -> None:
        """Request an update of the copy if there is a new checkpoint."""
        if self._copier is not None:
            self._copier.copy_checkpoints()

    def close(self) -> None:
        """Update the copy and wait for it."""
        if self._copier is None:
            return
        self._copier.finish()
        if self._copier.failure:
            logger.warning("the copy of %s is not complete; `sightline run --resume` completes it", self._run.name)

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
