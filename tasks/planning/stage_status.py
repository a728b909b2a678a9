"""What a run would do: which stages stand, here or in another run, and where training would go on."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan
from rl_core.run_directory import RunDirectory
from tasks.cache.epoch_chain import EpochChain
from tasks.cache.manifests import read_manifest
from tasks.cache.named_files import NamedFiles
from tasks.cache.reuse import other_runs, standing_manifest
from tasks.cache.stages import OWN_STAGES, epoch_chain, epoch_stage, stage_digests
from tasks.resuming.training_start import WantedTraining, last_step, training_start
from tasks.resuming.training_state import complete_epochs

_MOST_LINES = 20
"""Epochs of one status that have a line each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """A stage and what would become of it: "finished", "finished in RUN", "continues after step N" or "to do"."""

    stage: str
    status: str

    @property
    def is_finished(self) -> bool:
        """Whether nothing is to be done for it."""
        return self.status.startswith("finished")


def is_prepared_as(config: RunConfig, run: RunDirectory, files: NamedFiles) -> bool:
    """Whether the rows of this very config were prepared in a run. Raises ValueError as stage_digests does."""
    manifest = read_manifest(run, "prepare")
    return manifest is not None and manifest.digest == stage_digests(config, files)["prepare"]


def digests_to_compare(config: RunConfig, run: RunDirectory, files: NamedFiles, *, reuse: bool) -> dict[str, str]:
    """The digests of the stages. Where no run lies yet that could have one of them, no data are read to know them: they
    are those of a run that nobody made.

    Raises:
        ValueError: a data source or a file that the config names cannot be read.
    """
    if run.root.is_dir() or (reuse and next(other_runs(run), None) is not None):
        return stage_digests(config, files)
    return stage_digests(config, NamedFiles(lambda _: "not read"))


def stage_statuses(
    config: RunConfig,
    run: RunDirectory,
    digests: Mapping[str, str],
    *,
    reuse: bool,
    plan: BatchPlan | None,
    files: NamedFiles | None = None,
) -> list[StageStatus]:
    """The status of every stage, in the order in which they run. Without a batch plan the number of epochs is not
    known yet, and training is one line."""
    before = ["prepare", *(["cold-start"] if config.cold_start else [])]
    after = [stage for stage in digests if stage not in (*before, "training-rows", "training", "cold-start")]
    training = (
        _epoch_statuses(config, run, epoch_chain(config, digests, epochs=plan.epochs, files=files), reuse=reuse)
        if plan
        else [StageStatus(stage="training", status="to do; the rows are counted first")]
    )
    return [
        *(_status(run, stage, digests[stage], reuse=reuse) for stage in before),
        *training,
        *(_status(run, stage, digests[stage], reuse=reuse) for stage in after),
    ]


def _status(run: RunDirectory, stage: str, digest: str, *, reuse: bool) -> StageStatus:
    if standing_manifest(run, stage, digest) is not None:
        return StageStatus(stage=stage, status="finished")
    places = other_runs(run) if reuse and stage not in OWN_STAGES else ()
    found = next((place for place in places if standing_manifest(place, stage, digest)), None)
    return StageStatus(stage=stage, status=f"finished in {found.name}" if found else "to do")


def _epoch_statuses(config: RunConfig, run: RunDirectory, chain: EpochChain, *, reuse: bool) -> list[StageStatus]:
    store = CheckpointStore(run.checkpoints, save_limit=config.trainer.save_limit)
    own = training_start(run, WantedTraining(chain=chain, trainer=config.trainer), store)
    elsewhere = [(other, complete_epochs(other, chain)) for other in (other_runs(run) if reuse else ())]
    other, taken = max(elsewhere, key=lambda found: len(found[1]), default=(run, []))
    if len(taken) > len(own.epochs):
        finished, origin, step = taken, f"finished in {other.name}", 0
    else:
        finished, origin, step = own.epochs, "finished", own.step
    next_epoch = len(finished) + 1
    statuses = _same_status(1, len(finished), origin)
    if next_epoch <= len(chain) and step > last_step(finished):
        statuses.append(StageStatus(stage=epoch_stage(next_epoch), status=f"continues after step {step}"))
        next_epoch += 1
    return [*statuses, *_same_status(next_epoch, len(chain), "to do")]


def _same_status(first: int, last: int, status: str) -> list[StageStatus]:
    """Epochs that are alike: a line each, or one line for many."""
    if last - first >= _MOST_LINES:
        return [StageStatus(stage=f"{epoch_stage(first)} to {last:03d}", status=status)]
    return [StageStatus(stage=epoch_stage(epoch), status=status) for epoch in range(first, last + 1)]
