"""Train: one task for each epoch. A failed epoch that is retried continues from the last checkpoint."""

import errno
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun

from rl_core.checkpoints.store import CheckpointStore
from rl_core.data.manifest import DataManifest
from rl_core.evaluation.base_answers import BaseAnswers, scored
from rl_core.evaluation.result import read_evaluation
from rl_core.files import files_below
from rl_core.planning.batches import BatchPlan, batch_plan, epoch_spans
from rl_core.problem import raise_if_fatal
from rl_core.records.metrics_log import RunLogs, read, validated_steps
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLockLost
from rl_core.stop import Interrupted
from tasks.cache.amendments import data_place
from tasks.cache.manifests import StageManifest, finite
from tasks.cache.reuse import find_complete
from tasks.cache.stages import epoch_stage
from tasks.context import RunContext, current_context, named
from tasks.losses import losses_reported, lost_with
from tasks.planning.problems import prepared_column_problems, prepared_problems
from tasks.results.run_facts import environment_facts
from tasks.results.worker_rows import devices_words, worker_rows
from tasks.resuming.training_start import WantedTraining, has_reached_target, step_files, training_start
from tasks.resuming.training_state import finish_taking_over, mark_started, take_up_training
from tasks.run_pages import show_plan, steps_shown
from tasks.staging import StageOutcome, note_new_workers, present, recognised, record, report_software, tracked_stage
from tasks.tracking.run_tracking import log_split

if TYPE_CHECKING:
    from rl_core.loop.training_loop import EpochResult
    from rl_core.tracking.mlflow_runs import MlflowRun

logger = logging.getLogger(__name__)

RETRIES = 2
"""A lost device may come back. A retry costs little, since it continues from the last checkpoint."""


def is_worth_retrying(error: object) -> bool:
    """Whether a retry of a failed epoch may succeed. A run is determined by config, data and seed, so errors that the
    training itself raises come back. So do a full disk and mistakes that a person must correct. A stop was
    requested."""
    from rl_core.isolation.failed_share import TooManyFailures
    from rl_core.loop.collecting import StaleWeights
    from rl_core.loop.draws import TooFewInformativeGroups
    from rl_core.loop.learning_signal import NoSignal
    from rl_core.training.agreement import AgreementError
    from rl_core.training.optimizer import NonFiniteGradients
    from rl_core.training.probing import ProbeMismatch

    lasting = (
        Interrupted,
        AgreementError,
        NonFiniteGradients,
        NoSignal,
        ProbeMismatch,
        RunLockLost,
        StaleWeights,
        TooFewInformativeGroups,
        TooManyFailures,
    )
    mistakes = (ValueError, TypeError, LookupError, NotImplementedError)
    links = (error, getattr(error, "__cause__", None))
    is_full_disk = any(isinstance(link, OSError) and link.errno == errno.ENOSPC for link in links)
    return not (isinstance(error, lasting + mistakes) or is_full_disk)


def take_up(run: str) -> Iterator[int]:
    """Decide from where training continues, and return all epochs of an open run, counted from 1, finished ones
    included, until one of them reaches `trainer.stop_at`. Raises PlanError where the config does not fit the prepared
    rows."""
    context = current_context(run)
    data = context.run.data
    found = [
        *prepared_problems(context.config, DataManifest.read(data)),
        *prepared_column_problems(context.config, data),
    ]
    raise_if_fatal(found)
    show_plan(context, _plan(context))
    log_event = RunLogs(context.run).log_event
    trainer = context.config.trainer
    store = CheckpointStore(context.run.checkpoints, save_limit=trainer.save_limit, log_event=log_event)
    wanted = _wanted_training(context)
    finish_taking_over(context.run)
    context.storage.bring_training(wanted.chain, here=lambda: training_start(context.run, wanted, store).step)
    start = take_up_training(context.run, wanted, store, elsewhere=context.reuse)
    context.storage.copy()
    if start.step:
        goes_on = "training is complete" if start.ended else f"training goes on after step {start.step}"
        report_software(context, context.wanted("training"), start.trained_by, outcome=goes_on)
    context.trained_by = start.made_by(wanted.whole.software)
    if str(start):
        log_event("training-continues", step=start.step, again=start.again, message=str(start))
        logger.log(logging.WARNING if start.lost else logging.INFO, "%s", start)
    for manifest in start.epochs:
        context.manifests[manifest.stage] = manifest
    epochs = range(1, len(wanted.chain) + 1)
    return takewhile(lambda epoch: epoch == 1 or not _is_last(context, epoch - 1), epochs)


def _is_last(context: RunContext, epoch: int) -> bool:
    return has_reached_target(context.run, context.config.trainer, [context.manifests[epoch_stage(epoch)]])


def _wanted_training(context: RunContext) -> WantedTraining:
    """The training of all epochs; how many there are depends on the number of prepared rows."""
    plan = _plan(context)
    whole = context.wanted("training")
    return WantedTraining(
        whole=whole,
        chain=context.stages.epochs(plan.epochs),
        spans=epoch_spans(context.config, plan.train_rows, since=data_place(context.stages.amendments)),
        total_steps=plan.total_steps,
        trainer=context.config.trainer,
    )


def _plan(context: RunContext) -> BatchPlan:
    rows = DataManifest.read(context.run.data).splits["train"].rows
    return batch_plan(context.config, rows, since=data_place(context.stages.amendments))


def is_tried_again(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """What Prefect asks after a failure if a retry is left. A terminal shows messages of this module, and none of
    Prefect's."""
    error = state.data
    if not is_worth_retrying(error):
        return False
    again = "training is tried again from its last checkpoint"
    if isinstance(error, BaseException) and lost_with(error) is not None:  # which a warning has named
        logger.info("%s", again)
    else:
        logger.warning("%s, after this (%s): %s", again, type(error).__name__, error)
    return True


@task(
    name="train an epoch",
    task_run_name=named("train epoch {epoch}"),
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=[5, 30],
    retry_condition_fn=is_tried_again,
)
def train_epoch(run: str, epoch: int) -> StageManifest | State[StageManifest]:
    """Train one epoch of an open run, from its last checkpoint on.

    A failure closes the session, so that a retry starts new workers.
    """
    context = current_context(run)
    context.stop.raise_if_requested()
    stage = epoch_stage(epoch)
    finished = context.manifests.get(stage)
    if finished is not None:
        with context.tracking.following():
            return recognised(context, finished, show=_show)
    with context.tracking.stage_running(tracked_stage(stage)):
        started = time.monotonic()
        with _closed_on_failure(context), losses_reported(context, stage):
            note_new_workers(context)
        wanted = _wanted_training(context).epoch(epoch, made_by=context.trained_by)
        mark_started(context.run, wanted)
        result = _train(context, epoch)
        outputs = epoch_outputs(context.run, result, context.session.store)
        outcome = StageOutcome(outputs=outputs, result=_facts(context, result))
        seconds = max(time.monotonic() - started, _seconds_of_steps(context, result))
        manifest = record(context, wanted, outcome, seconds=seconds)
    present(context, manifest, show=_show)
    return manifest


def _train(context: RunContext, epoch: int) -> "EpochResult":
    with _closed_on_failure(context), context.tracking.following() as follow, steps_shown(context) as refresh:

        def after_step() -> None:
            follow()
            refresh()
            context.storage.copy_checkpoints()

        # Only before the first step the model is the base model.
        base = None if context.session.store.complete() else _base_answers(context)
        with losses_reported(context, epoch_stage(epoch)):
            return context.session.train_epoch(
                epoch, because=context.continues_because, base=base, after_step=after_step
            )


def _base_answers(context: RunContext) -> BaseAnswers:
    """The base model's answers to the held-out prompts, where this software has made them in its evaluation."""
    wanted = context.wanted("evaluate-base")
    found = find_complete(context.run, wanted, elsewhere=context.reuse, fetch=context.storage.bring_stage)
    is_same = found is not None and wanted.why_not_taken(found) is None
    return BaseAnswers(key=wanted.key, items=scored(read_evaluation(context.run.evaluation("base"))) if is_same else {})


@contextmanager
def _closed_on_failure(context: RunContext) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        lost = lost_with(error)
        context.continues_because = f"{lost.names}: {lost.cause}" if lost else f"{error}" or type(error).__name__
        context.close_session()
        raise


def epoch_outputs(run: RunDirectory, result: "EpochResult", store: CheckpointStore) -> list[Path]:
    """The epoch's records and checkpoint, and the best checkpoint so far, which evaluation and merge may need. If the
    epoch's checkpoint was removed before the epoch is recorded, only the records; lost files are left out."""
    validated = validated_steps(run.metrics)
    files = [
        file for step in range(result.first_step, result.last_step + 1) for file in step_files(run, validated, step)
    ]
    records = [file for file in (run.metrics, *files, *files_below(run.tool_images)) if file.is_file()]
    if result.checkpoint is None:
        return records
    best = store.best()
    return [*records, *sorted({result.checkpoint} | ({best.folder} if best else set()))]


def _facts(context: RunContext, result: "EpochResult") -> dict[str, Any]:
    from rl_core.models.attention import attention_backend

    return {
        "epoch": result.epoch,
        "first_step": result.first_step,
        "last_step": result.last_step,
        "checkpoint": result.checkpoint and result.checkpoint.relative_to(context.run.root).as_posix(),
        "attention": attention_backend(context.config.model),
        "device": ", ".join(dict.fromkeys(row.device for row in worker_rows(read(context.run.timings)))),
        "versions": environment_facts(),
        "metrics": finite(result.metrics),
        "reached_target": result.reached_target,
    }


def _seconds_of_steps(context: RunContext, result: "EpochResult") -> float:
    """Seconds of all steps of the epoch, steps before an interruption included."""
    steps = range(result.first_step, result.last_step + 1)
    return float(sum(record["total_s"] for record in read(context.run.timings) if record["step"] in steps))


def _show(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
    """Show the data, the devices and the path of the checkpoint. The metrics of the steps are sent by the follower."""
    log_split(mlflow_run, run, "train")
    mlflow_run.set_tags({"devices": devices_words(worker_rows(read(run.timings)))})
    if manifest.result["checkpoint"] is not None:
        mlflow_run.set_tags({f"checkpoint.{manifest.stage}": run.root / manifest.result["checkpoint"]})
