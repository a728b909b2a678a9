"""How every stage is run: a finished stage is recognised; any other is made, hashed, recorded and shown. And with how
many workers, where fewer than configured are allowed (`cluster.min_workers`)."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import State
from prefect.states import Completed

from rl_core.config.cluster import ClusterConfig
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held
from tasks.cache.manifests import StageManifest, WantedStage, describe_outputs, write_manifest
from tasks.cache.reuse import find_complete, set_aside, why_made_again
from tasks.cache.software import Software, changes_since, continued, in_words, with_workers
from tasks.cache.stages import OWN_STAGES
from tasks.context import RunContext, current_context
from tasks.losses import losses_reported
from tasks.pages.markdown import stage_page
from tasks.run_pages import show_stage
from tasks.tracking.run_tracking import Show

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutcome:
    """What a stage made: files and folders in the run's folder, and a small JSON result."""

    outputs: Sequence[Path]
    result: Mapping[str, Any]


Make = Callable[[RunContext], StageOutcome]


def run_stage(run_name: str, stage: str, *, make: Make, show: Show) -> StageManifest | State[StageManifest]:
    """Return the manifest of a stage of an open run. The stage is made first unless it is finished and valid. Returns
    the manifest; a state named "Cached" with the manifest when nothing had to be made."""
    context = current_context(run_name)
    context.stop.raise_if_requested()
    ensure_held(context.run.lock)
    wanted = context.wanted(stage)
    elsewhere = context.reuse and stage not in OWN_STAGES
    found = find_complete(context.run, wanted, elsewhere=elsewhere, fetch=context.storage.bring_stage)
    if found is not None:
        report_software(context, wanted, found.software, outcome=f"{stage} stands")
        return recognised(context, found, show=show)
    changed = why_made_again(context.run, wanted)
    if changed is not None:
        logger.warning("%s is made again: %s", stage, changed)
    set_aside(context.run, stage)
    with context.tracking.stage_running(stage), context.stop.taking_effect(lambda: f"after the stage {stage}"):
        started = time.monotonic()
        with losses_reported(context, stage):
            outcome = make(context)
        made = replace(wanted, software=context.wanted(stage).software)  # on the workers that there were
        manifest = record(context, made, outcome, seconds=time.monotonic() - started)
    present(context, manifest, show=show)
    return manifest


def record(context: RunContext, made: WantedStage, outcome: StageOutcome, *, seconds: float) -> StageManifest:
    """Hash what a stage made and write its manifest, which makes the stage finished."""
    manifest = StageManifest(
        stage=made.name,
        digest=made.digest,
        outputs=describe_outputs(context.run.root, outcome.outputs),
        result=outcome.result,
        seconds=seconds,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=made.parts,
        software=made.software,
    )
    write_manifest(context.run, manifest)
    logger.info("%s: finished in %.1f s", made.name, seconds)
    context.storage.copy()
    return manifest


def report_software(context: RunContext, wanted: WantedStage, made_by: Software, *, outcome: str) -> None:
    """Warn, and record an event, when a run goes on from what other software made; of each change once."""
    changes = changes_since(made_by, wanted.software)
    news = {name: pair for name, pair in changes.items() if f"{name} {pair}" not in context.reported_changes}
    if news:
        message = f"{outcome}, made by other software: {in_words(news)}"
        context.reported_changes |= {f"{name} {pair}" for name, pair in news.items()}
        RunLogs(context.run).log_event("software-changed", stage=wanted.name, changes=news, message=message)
        logger.warning("%s", message)


def recognised(context: RunContext, manifest: StageManifest, *, show: Show) -> State[StageManifest]:
    """The state of a stage that is already finished."""
    origin = f"taken over from {manifest.reused_from}" if manifest.reused_from else "finished before"
    logger.info("%s: %s", manifest.stage, origin)
    present(context, manifest, show=show)
    return Completed(name="Cached", message=f"{manifest.stage}: {origin}", data=manifest)


def present(context: RunContext, manifest: StageManifest, *, show: Show) -> None:
    """Show a finished stage in MLflow and as an artifact, and make its manifest known to the next stages."""
    context.manifests[manifest.stage] = manifest

    def show_described(mlflow_run: "MlflowRun", manifest: StageManifest, run: RunDirectory) -> None:
        mlflow_run.describe(stage_page(manifest))
        show(mlflow_run, manifest, run)

    context.tracking.show(tracked_stage(manifest.stage), manifest, show_described)
    show_stage(context, manifest)


def tracked_stage(stage: str) -> str:
    """Name of the nested MLflow run of a stage. All epochs share one, so that their steps are one curve."""
    return "train" if stage.startswith("train-epoch-") else stage


def start_workers(context: RunContext) -> None:
    """Start the workers of an open run, if they are not running, where it may turn out with how many. Another number
    than before is an event, and counts as other software from the last checkpoint on."""
    asked = context.located.cluster
    if asked.min_workers is None:
        return
    there = context.session.workers.cluster
    now = with_workers(context.software, there)
    if now == context.software:
        return
    context.software = now
    RunLogs(context.run).log_event(
        "workers-changed", workers=there.ranks, of=asked.ranks, message=_message(there, asked)
    )
    logger.warning("%s", _message(there, asked))


def note_new_workers(context: RunContext) -> None:
    """As `start_workers`, for a training that may have begun: its software is noted from its last checkpoint on. What
    other workers had generated after it is generated again, since these come to other weights."""
    before = context.wanted("training").software
    start_workers(context)
    now = context.wanted("training").software
    if now == before:
        return
    last = context.session.store.latest()
    step = last.step if last else 0
    context.trained_by = continued(context.trained_by, now, step=step) if step else now
    RunLogs(context.run).cut_back(step or -1)


def _message(there: ClusterConfig, asked: ClusterConfig) -> str:
    if there.ranks == asked.ranks:
        return f"all {asked.ranks} workers are there again, and the run goes on with them"
    return (
        f"the run goes on with {there.ranks} of {asked.ranks} workers, {there.devices} on each of {there.nodes} "
        f"machine(s): there is no room for more (cluster.min_workers is {asked.min_workers})"
    )
