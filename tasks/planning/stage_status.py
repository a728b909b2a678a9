"""What a run would do: which stages are finished, here or in another run, and where training would go on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan, batch_plan, epoch_spans
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import data_place, read_amendments
from tasks.cache.manifests import StageManifest, WantedStage, is_recorded
from tasks.cache.named_files import NamedFiles
from tasks.cache.reuse import manifest_to_take, other_runs, own_manifest, why_made_again, why_not_taken
from tasks.cache.software import Software, changes_since, in_words, made_from, software_of_stages
from tasks.cache.stages import (
    OWN_STAGES,
    Chain,
    Parts,
    epoch_chain,
    epoch_stage,
    kind_of,
    stage_digests,
    stage_parts,
    stages_before,
)
from tasks.resuming.training_start import WantedTraining, last_step, training_start
from tasks.resuming.training_state import longest_to_take, why_no_epochs

_MOST_LINES = 20
"""So many epochs of one status have a line each; more share one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """A stage and its status, such as "continues after step N", with the reason where it is made again."""

    stage: str
    status: str

    @property
    def is_finished(self) -> bool:
        """Whether nothing has to be done for the stage."""
        return self.status.startswith("finished")


_UNCOUNTED = StageStatus(stage="training", status="to do; the rows are counted first")


def _to_do(stage: str) -> StageStatus:
    return StageStatus(stage=stage, status="to do")


def is_prepared_as(config: RunConfig, run: RunDirectory, files: NamedFiles) -> bool:
    """Whether a run has the prepared rows of this config. Raises ValueError where a file cannot be read."""
    return is_recorded(run, "prepare", stage_digests(config, files)["prepare"])


def digests_to_compare(config: RunConfig, run: RunDirectory, files: NamedFiles, *, reuse: bool) -> dict[str, str]:
    """The digests of the stages. If there is no run that could have finished one of them, no data is read; the digests
    then match no run. Raises ValueError where a data source or a file that the config names cannot be read."""
    is_read = _may_be_finished(run, reuse=reuse)
    named = files if is_read else NamedFiles(lambda _: "not read", paths_from=config.paths_from)
    return stage_digests(config, named, read_amendments(run))


def _may_be_finished(run: RunDirectory, *, reuse: bool) -> bool:
    return run.root.is_dir() or (reuse and next(other_runs(run), None) is not None)


def stage_statuses(
    config: RunConfig,
    run: RunDirectory,
    digests: Mapping[str, str],
    *,
    reuse: bool,
    plan: BatchPlan | None,
    files: NamedFiles | None = None,
) -> list[StageStatus]:
    """The status of every stage, in the order in which they run. Without a batch plan the number of epochs is not known
    yet, and training is one line. The files that the config names are read from where `files` says."""
    before = ["prepare", *(["cold-start"] if config.cold_start else [])]
    after = [stage for stage in digests if stage not in (*before, "training-rows", "training", "cold-start")]
    if not _may_be_finished(run, reuse=reuse):
        training = _same_status(1, plan.epochs, "to do") if plan else [_UNCOUNTED]
        return [*map(_to_do, before), *training, *map(_to_do, after)]
    named = files or NamedFiles(paths_from=config.paths_from)
    view = _View(config=config, run=run, digests=digests, reuse=reuse, files=named)
    return [
        *map(view.status, before),
        *view.training(plan),
        *map(view.status, after),
    ]


@dataclass(frozen=True, kw_only=True)
class _View:
    """Finds the stages' status in order: whether one can be taken over depends on those before it, on what `made_by`
    says about them."""

    config: RunConfig
    run: RunDirectory
    digests: Mapping[str, str]
    reuse: bool
    files: NamedFiles
    made_by: dict[str, Software] = field(default_factory=dict)

    @cached_property
    def parts(self) -> Mapping[str, Parts]:
        return stage_parts(self.config, self.digests, self.files)

    @cached_property
    def software(self) -> Mapping[str, Software]:
        return software_of_stages(self.config, self.files)

    def status(self, stage: str) -> StageStatus:
        """The status of a stage that is not an epoch."""
        wanted = self._wanted(stage)
        own = own_manifest(self.run, wanted)
        if own is not None:
            return self._known(stage, own, f"finished{_by_other_software(own.software, wanted.software)}")
        is_own = stage in OWN_STAGES
        for other in () if is_own else self._others():
            found = manifest_to_take(other, wanted)
            if found is not None:
                return self._known(stage, found, f"finished in {other.name}")
        self.made_by[stage] = wanted.software
        reasons = [
            why_made_again(self.run, wanted),
            why_not_taken(self.run, wanted) if self.reuse and not is_own else None,
        ]
        return StageStatus(stage=stage, status="; ".join(["to do", *filter(None, reasons)]))

    def training(self, plan: BatchPlan | None) -> list[StageStatus]:
        """The status of every epoch, or of the whole training where the number of epochs is not known."""
        whole = self._wanted("training")
        self.made_by["training"] = whole.software
        if plan is None:
            return [_UNCOUNTED]
        amendments = read_amendments(self.run)
        plan = batch_plan(self.config, plan.train_rows, since=data_place(amendments))
        chain = epoch_chain(self.config, self.digests, epochs=plan.epochs, files=self.files, amendments=amendments)
        wanted = WantedTraining(
            whole=whole,
            chain=chain,
            spans=epoch_spans(self.config, plan.train_rows, since=data_place(amendments)),
            total_steps=plan.total_steps,
            trainer=self.config.trainer,
        )
        store = CheckpointStore(self.run.checkpoints, save_limit=self.config.trainer.save_limit)
        own = training_start(self.run, wanted, store)
        other, taken = longest_to_take(self._others(), wanted)
        if other is not None and len(taken) > len(own.epochs):
            return _epoch_statuses(chain, len(taken), f"finished in {other.name}")
        self.made_by["training"] = own.epochs[-1].software if own.ended else own.made_by(whole.software)
        changed = _by_other_software(own.trained_by, whole.software) if own.step else ""
        goes_on = f"continues after step {own.step}{changed}" if own.step > last_step(own.epochs) else None
        refused = why_no_epochs(self._others(), wanted, more_than=len(own.epochs))
        to_do = f"to do; {refused}" if refused else "to do"
        return _epoch_statuses(chain, len(own.epochs), f"finished{changed}", next_one=goes_on, others=to_do)

    def _others(self) -> Iterator[RunDirectory]:
        return other_runs(self.run) if self.reuse else iter(())

    def _wanted(self, stage: str) -> WantedStage:
        parts = self.parts[stage]
        before = {name: self.made_by[name] for name in stages_before(parts) if name in self.made_by}
        return WantedStage(
            name=stage,
            digest=self.digests[stage],
            parts=parts,
            software={**self.software.get(kind_of(stage), {}), **made_from(before)},
        )

    def _known(self, stage: str, manifest: StageManifest, status: str) -> StageStatus:
        self.made_by[stage] = manifest.software
        return StageStatus(stage=stage, status=status)


def _by_other_software(made_by: Software, now: Software) -> str:
    """The addition to the status of a finished stage that other software made; else empty."""
    changes = changes_since(made_by, now)
    return f", by other software: {in_words(changes)}" if changes else ""


def _epoch_statuses(
    chain: Chain, finished: int, origin: str, *, next_one: str | None = None, others: str = "to do"
) -> list[StageStatus]:
    statuses = _same_status(1, finished, origin)
    next_epoch = finished + 1
    if next_epoch <= len(chain) and next_one is not None:
        statuses.append(StageStatus(stage=epoch_stage(next_epoch), status=next_one))
        next_epoch += 1
    return [*statuses, *_same_status(next_epoch, len(chain), others)]


def _same_status(first: int, last: int, status: str) -> list[StageStatus]:
    """Epochs with the same status: one line for each, or one line for many."""
    if last - first >= _MOST_LINES:
        return [StageStatus(stage=f"{epoch_stage(first)} to {last:03d}", status=status)]
    return [StageStatus(stage=epoch_stage(epoch), status=status) for epoch in range(first, last + 1)]
