"""How every stage is run: recognised if it stands, else made, hashed, recorded and shown."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import State
from prefect.states import Completed

from rl_core.run_lock import ensure_held
from tasks.cache.manifests import StageManifest, describe_outputs, write_manifest
from tasks.cache.reuse import discard_stage, find_complete, why_anew
from tasks.cache.stages import OWN_STAGES
from tasks.context import RunContext, current_context
from tasks.run_pages import show_stage
from tasks.tracking.run_tracking import Show

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutcome:
    """What a stage made: files and folders below the run's folder, and small JSON facts."""

    outputs: Sequence[Path]
    result: Mapping[str, Any]


Make = Callable[[RunContext], StageOutcome]


def run_stage(run_name: str, stage: str, *, make: Make, show: Show) -> StageManifest | State[StageManifest]:
    """Return the manifest of a stage of an open run, making the stage first if it does not stand.

    Returns:
        The manifest; as a state named "Cached" when nothing had to be made.
    """
    context = current_context(run_name)
    context.stop.raise_if_requested()
    ensure_held(context.run.lock)
    digest = context.digests[stage]
    elsewhere = context.reuse and stage not in OWN_STAGES
    found = find_complete(context.run, stage, digest, elsewhere=elsewhere, fetch=context.storage.bring_stage)
    if found is not None:
        return recognised(context, found, show=show)
    changed = why_anew(context.run, stage, digest, context.parts[stage])
    if changed is not None:
        logger.warning("%s is made anew: %s", stage, changed)
    discard_stage(context.run, stage)
    with context.tracking.stage_running(stage):
        started = time.monotonic()
        outcome = make(context)
        manifest = record(context, stage, digest, outcome, seconds=time.monotonic() - started)
    present(context, manifest, show=show)
    return manifest


def record(context: RunContext, stage: str, digest: str, outcome: StageOutcome, *, seconds: float) -> StageManifest:
    """Hash what a stage made and write its manifest: from here on it stands."""
    manifest = StageManifest(
        stage=stage,
        digest=digest,
        outputs=describe_outputs(context.run.root, outcome.outputs),
        result=outcome.result,
        seconds=seconds,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=context.parts[_parts_name(stage)],
    )
    write_manifest(context.run, manifest)
    logger.info("%s: finished in %.1f s", stage, seconds)
    context.storage.copy()
    return manifest


def _parts_name(stage: str) -> str:
    return "training" if tracked_stage(stage) == "train" else stage


def recognised(context: RunContext, manifest: StageManifest, *, show: Show) -> State[StageManifest]:
    """The state of a stage that stands already."""
    origin = f"taken over from {manifest.reused_from}" if manifest.reused_from else "finished before"
    logger.info("%s: %s", manifest.stage, origin)
    present(context, manifest, show=show)
    return Completed(name="Cached", message=f"{manifest.stage}: {origin}", data=manifest)


def present(context: RunContext, manifest: StageManifest, *, show: Show) -> None:
    """Show a stage that stands: in MLflow, as an artifact of the flow, and to the stages after it."""
    context.manifests[manifest.stage] = manifest
    context.tracking.show(tracked_stage(manifest.stage), manifest, show)
    show_stage(context, manifest)


def tracked_stage(stage: str) -> str:
    """The nested MLflow run of a stage: all epochs share one, so that their steps are one curve."""
    return "train" if stage.startswith("train-epoch-") else stage
