"""Which epochs of a run stand, and how training state that no longer belongs to the config is dropped.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So epochs are judged as a chain: the longest row of finished epochs, from the first, whose
records stand and whose last one still has its checkpoint.
"""

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_core.files import atomic_write_json, scratch_folder
from rl_core.run_directory import RunDirectory
from rl_core.tracking.metrics_log import RunLogs
from tasks.manifests import Output, StageManifest, altered_output, read_manifest
from tasks.reuse import adopt, other_runs, remove_paths

logger = logging.getLogger(__name__)

Chain = Sequence[tuple[str, str]]
"""Name and digest of every epoch's stage, in order."""


def settle_training(run: RunDirectory, chain: Chain, *, elsewhere: bool) -> list[StageManifest]:
    """Decide what training starts from, once a run: bring this run's files into a state that is right for the chain.

    Epochs of another run are taken over when it has more of them. What belongs to none of the chain's epochs is
    removed; a half-trained epoch stays when it was begun with the same digest.

    Returns:
        The manifests of the epochs that stand; training goes on after the last.
    """
    own = standing_epochs(run, chain)
    if elsewhere:
        taken = _take_longer(run, chain, len(own))
        if taken:
            return taken
    if not _continues(run, chain, len(own)):
        rewind(run, chain, len(own))
    return own


def standing_epochs(run: RunDirectory, chain: Chain) -> list[StageManifest]:
    """The longest row of finished epochs of the chain that stand in this run."""
    standing: list[StageManifest] = []
    for stage, digest in chain:
        manifest = read_manifest(run, stage)
        if manifest is None or manifest.digest != digest or not _stands(run, stage, _records(manifest)):
            break
        standing.append(manifest)
    while standing and not _has_checkpoint(run, standing[-1]):
        standing.pop()
    return standing


def mark_started(run: RunDirectory, stage: str, digest: str) -> None:
    """Note that this epoch is being trained, so that a later start knows whom half-finished state belongs to."""
    path = _started_file(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, {"stage": stage, "digest": digest})


def rewind(run: RunDirectory, chain: Chain, epochs: int) -> None:
    """Drop everything after the first `epochs` epochs of the chain."""
    manifest = read_manifest(run, chain[epochs - 1][0]) if epochs else None
    last_step = int(manifest.result["last_step"]) if manifest else 0
    _started_file(run).unlink(missing_ok=True)
    remove_paths(path for path in _manifests_of_epochs(run) if path.stem not in {stage for stage, _ in chain[:epochs]})
    remove_paths(path for path in run.checkpoints.glob("*") if _step_of(path) > last_step)
    RunLogs(run).cut_back(last_step or -1)


def _continues(run: RunDirectory, chain: Chain, epochs: int) -> bool:
    """Whether half-finished training here is that of the chain's next epoch. An epoch that has a manifest and does not
    stand was finished and then altered: that is no half-finished epoch."""
    if epochs == len(chain):
        return True
    stage, digest = chain[epochs]
    try:
        started = json.loads(_started_file(run).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(started == {"stage": stage, "digest": digest} and not run.stage_manifest(stage).exists())


def _take_longer(run: RunDirectory, chain: Chain, more_than: int) -> list[StageManifest]:
    """Take over the epochs of the run beside this one that has most of them, if it has more than this one."""
    candidates = [(other, standing_epochs(other, chain)) for other in other_runs(run)]
    source, epochs = max(candidates, key=lambda candidate: len(candidate[1]), default=(run, []))
    if len(epochs) <= more_than:
        return []
    last_step = int(epochs[-1].result["last_step"])
    # The other run may change under our hands: this one gives up its own epochs when it holds all files of the other's.
    with scratch_folder(run.root / "taken") as folder:
        held = RunDirectory(folder)
        take_timings(source.timings, held.timings, last_step=last_step)
        whole = [*(_without_pruned(source, epoch) for epoch in epochs[:-1]), epochs[-1]]
        if not all(adopt(epoch, source=source, into=held) for epoch in whole):
            return []
        rewind(run, chain, 0)
        take_timings(held.timings, run.timings, last_step=last_step)
        taken = [adopt(epoch, source=held, into=run) for epoch in standing_epochs(held, chain)]
    return [manifest for manifest in taken if manifest is not None]


def take_timings(source: Path, target: Path, *, last_step: int) -> None:
    """Copy the timings of the steps up to `last_step`: they are no result, so no manifest speaks for them."""
    if source.is_file():
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(line for line in lines if json.loads(line)["step"] <= last_step), encoding="utf-8")


def _without_pruned(run: RunDirectory, manifest: StageManifest) -> StageManifest:
    """The manifest without the checkpoint that retention removed after a later epoch."""
    if _has_checkpoint(run, manifest):
        return manifest
    return dataclasses.replace(manifest, outputs=_records(manifest))


def _has_checkpoint(run: RunDirectory, manifest: StageManifest) -> bool:
    files = {path: output for path, output in manifest.outputs.items() if _is_checkpoint(path)}
    return bool(files) and _stands(run, manifest.stage, files)


def _records(manifest: StageManifest) -> dict[str, Output]:
    return {path: output for path, output in manifest.outputs.items() if not _is_checkpoint(path)}


def _is_checkpoint(path: str) -> bool:
    return path.startswith("checkpoints/")


def _stands(run: RunDirectory, stage: str, outputs: Mapping[str, Output]) -> bool:
    problem = altered_output(run.root, outputs)
    if problem:
        logger.info("%s of %s: %s", stage, run.name, problem)
    return problem is None


def _started_file(run: RunDirectory) -> Path:
    return run.stage_manifest("training").with_suffix(".started")


def _manifests_of_epochs(run: RunDirectory) -> list[Path]:
    return list(run.stage_manifest("any").parent.glob("train-epoch-*.json"))


def _step_of(path: Path) -> int:
    """The step in `step-000032`; 0 for every other name, which the store judges."""
    prefix, _, number = path.stem.partition("-")
    return int(number) if prefix == "step" and number.isdecimal() else 0
