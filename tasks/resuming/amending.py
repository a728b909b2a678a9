"""A training that goes on with another recipe than it was begun with: in its own run, or as a fork of another one."""

import dataclasses
import logging
from collections.abc import Callable, Mapping

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.key_kinds import LENGTH, OPERATION, changed_keys, is_of
from rl_core.config.loading import ConfigError, load_config
from rl_core.config.model import TinyModel
from rl_core.config.run import ForkedFrom, RunConfig
from rl_core.files import files_below, link_or_copy, replace_folder, scratch_folder
from rl_core.planning.batches import epoch_spans
from rl_core.planning.epoch_spans import DataPlace
from rl_core.records.metrics_log import RunLogs, lines_until, step_files
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import Amendment, Amendments, data_place, read_amendments, write_amendments
from tasks.cache.manifests import StageManifest, WantedStage, manifests_of_epochs, read_manifest, write_manifest
from tasks.cache.reuse import adopt, remove_paths
from tasks.cache.software import Software
from tasks.cache.stages import ConfigStages
from tasks.resuming.training_start import (
    another_training,
    begun_epoch,
    first_loss,
    last_step,
    recorded_epochs,
    records_of,
    started_file,
)
from tasks.resuming.training_state import finish_taking_over, mark_started

logger = logging.getLogger(__name__)

StagesOf = Callable[[Amendments], ConfigStages]


def stages_taken_up(run: RunDirectory, stages_of: StagesOf, *, keeps_training: bool) -> ConfigStages:
    """The stages of a run that is started now, after its training has been brought to agree with its config: a fork
    gets the steps of the run that it is forked from; with `keeps_training` a training of another recipe goes on with
    this one. Raises ConfigError where it does not agree, and where it cannot."""
    finish_taking_over(run)
    stages = stages_of(read_amendments(run))
    if stages.config.forked_from is not None and not stages.amendments:
        stages = _forked(run, stages.config.forked_from, stages_of)
    changed = another_training(run, stages)
    if not changed:
        return stages
    if not keeps_training:
        raise ConfigError(
            f"the training in {run.root} was begun with another recipe ({', '.join(changed)} changed): --keep-training "
            f"goes on from its last checkpoint, --fresh starts a new run beside it"
        )
    return _amended(run, stages, changed, stages_of)


def _amended(run: RunDirectory, stages: ConfigStages, changed: list[str], stages_of: StagesOf) -> ConfigStages:
    newest = CheckpointStore(run.checkpoints, save_limit=stages.config.trainer.save_limit).latest()
    logs = RunLogs(run)
    if newest is None:  # nothing is lost that a start would go on from
        started_file(run).unlink(missing_ok=True)
        remove_paths(manifests_of_epochs(run))
        logs.cut_back(-1)
        return stages
    prepared = read_manifest(run, "prepare")
    if isinstance(stages.config.model.source, TinyModel) and prepared and prepared.digest != stages.digests["prepare"]:
        raise ConfigError(
            f"the training of {run.name} cannot go on with other rows, because a tiny model's tokenizer is trained on "
            f"them ({', '.join(changed)} changed)"
        )
    begun = begun_epoch(run)
    amendment = Amendment(
        step=newest.step,
        what=changed,
        begun=begun.digest if begun else "",
        kept=_kept(run, newest.step),
        place=_place(stages.config, newest, stages.amendments),
    )
    amendments = [*stages.amendments, amendment]
    write_amendments(run, amendments)
    logs.cut_back(newest.step)  # later rollouts and scores were made with the former recipe
    stages = stages_of(amendments)
    if begun is not None:
        _note(run, begun.software, stages)
    message = f"the training goes on after step {newest.step} with another recipe: {', '.join(changed)} changed"
    logs.log_event("recipe-changed", step=newest.step, changed=changed, message=message)
    logger.warning("%s", message)
    return stages


def _place(config: RunConfig, checkpoint: Checkpoint, amendments: Amendments) -> DataPlace:
    """The place of a checkpoint in the rows that it was trained on, with the batches of this config."""
    spans = epoch_spans(config, checkpoint.info.loader["rows"], since=data_place(amendments))
    return spans.place(checkpoint.step)


def _kept(run: RunDirectory, step: int) -> Mapping[str, str]:
    """[stage] -> digest of the epochs up to a step, and of the cold start before them."""
    cold_start = read_manifest(run, "cold-start")
    stages = [*([cold_start] if cold_start else []), *_whole_epochs(run, step)]
    return {stage.stage: stage.digest for stage in stages}


def _whole_epochs(run: RunDirectory, step: int) -> list[StageManifest]:
    """The finished epochs up to a step that another one followed. The last epoch may have been cut by the length of the
    run, and goes on then."""
    begun, epochs = begun_epoch(run), recorded_epochs(run)
    started = begun.name if begun else epochs[-1].stage if epochs else ""
    return [epoch for epoch in epochs if last_step([epoch]) <= step and _number(epoch.stage) < _number(started)]


def _number(epoch: str) -> int:
    return int(epoch.rpartition("-")[2] or 0)


def _note(run: RunDirectory, software: Software, stages: ConfigStages) -> None:
    """Note that the epoch after those that are kept is begun, with the software that made the steps so far."""
    number = 1 + sum(stage.startswith("train-epoch-") for stage in stages.amendments[-1].kept)
    name, digest = stages.epochs(number)[-1]
    mark_started(run, WantedStage(name=name, digest=digest, parts=stages.parts["training"], software=software))


def checkpoint_to_fork(origin: RunDirectory, step: int | None = None) -> Checkpoint:
    """The checkpoint of a step, or the newest one. Raises ConfigError, with the steps that there are, where there is
    none."""
    saved = {found.step: found for found in CheckpointStore(origin.checkpoints, save_limit=1).complete()}
    wanted = max(saved, default=None) if step is None else step
    if wanted is None or wanted not in saved:
        there = ", ".join(map(str, saved)) or "none"
        which = "" if step is None else f" of step {step}"
        raise ConfigError(f"{origin.root} has no checkpoint{which}, from which a run could be forked; it has {there}")
    return saved[wanted]


def _forked(run: RunDirectory, fork: ForkedFrom, stages_of: StagesOf) -> ConfigStages:
    """Bring the steps up to the fork, with the cold start before them, from the run that is forked. The files are
    linked, so that this run stays whole when that one is removed."""
    origin = RunDirectory(run.root.parent / fork.run)
    checkpoint = checkpoint_to_fork(origin, fork.step)
    begun, epochs = begun_epoch(origin), _whole_epochs(origin, fork.step)
    if (loss := first_loss(origin, epochs, until=fork.step)) is not None:
        raise ConfigError(f"forked_from: a record of {origin.name} is lost: {loss.what}")
    before = load_config(origin.config)
    history = [each for each in read_amendments(origin) if each.step <= fork.step]
    amendment = Amendment(
        step=fork.step,
        what=[key for key, _, _ in changed_keys(before, stages_of(()).config) if not is_of(_OTHERS, key)],
        begun=begun.digest if begun else "",
        kept=_kept(origin, fork.step),
        forked_from=origin.name,
        place=_place(before, checkpoint, history),
    )
    amendments = [*history, amendment]
    stages = stages_of(amendments)
    check_fork(origin, stages.config)
    _check_tokenizer(origin, stages)
    with scratch_folder(run.taken) as folder:
        held = RunDirectory(folder)
        _link_steps(origin, held, checkpoint, until=fork.step)
        for epoch in epochs:
            write_manifest(held, dataclasses.replace(epoch, outputs=records_of(epoch), reused_from=origin.name))
        if (cold_start := read_manifest(origin, "cold-start")) is not None and not adopt(
            cold_start, source=origin, into=held
        ):
            raise ConfigError(f"forked_from: the cold start of {origin.name} was altered")
        write_amendments(held, amendments)
        _note(held, begun.software if begun else {}, stages)
        replace_folder(folder, run.taken)
    finish_taking_over(run)
    RunLogs(run).log_event("forked", step=fork.step, run=origin.name, message=f"{amendment}")
    return stages


_OTHERS = LENGTH | OPERATION | {"forked_from", "experiment"}
"""Keys that are no change of the recipe."""


def check_fork(origin: RunDirectory, now: RunConfig) -> None:
    """Raises ConfigError where the checkpoints of a run do not fit the config of a fork, as far as the two configs show
    it."""
    before = load_config(origin.config)
    if before.model.model_dump(include=_OF_WEIGHTS) != now.model.model_dump(include=_OF_WEIGHTS):
        raise ConfigError(
            "a fork goes on with the weights of a checkpoint, so model.source and model.lora stay as they are"
        )
    if (before.critic is None) != (now.critic is None):
        raise ConfigError(
            "a fork goes on with a checkpoint, which has a critic exactly if the run that it is from had one"
        )


def _check_tokenizer(origin: RunDirectory, stages: ConfigStages) -> None:
    prepared = read_manifest(origin, "prepare")
    if isinstance(stages.config.model.source, TinyModel) and prepared and prepared.digest != stages.digests["prepare"]:
        raise ConfigError(
            "a fork of a tiny model needs the same rows, templates and seed, because its tokenizer is trained on them"
        )


_OF_WEIGHTS = {"source", "lora", "freeze_vision_tower"}


def _link_steps(origin: RunDirectory, held: RunDirectory, checkpoint: Checkpoint, *, until: int) -> None:
    """Link a checkpoint and the records of the steps up to it."""
    for source in (origin.metrics, origin.timings):
        if source.is_file():
            target = held.root / source.relative_to(origin.root)
            target.write_bytes(b"".join(lines_until(source, until)))
    folders = (origin.rollouts(0).parent, origin.validation(0).parent)
    steps = [path for folder in folders for step, path in step_files(folder) if step <= until]
    for path in [*steps, *files_below(checkpoint.folder), *files_below(origin.tool_images)]:
        target = held.root / path.relative_to(origin.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path, target)
