"""Finds a finished stage in this run or in another one, and takes it over.

The files of another run's stage are hard-linked into this run's folder (copied where the file system has no hard
links), so that a run is always complete by itself, and later stages read from one folder only.
"""

import dataclasses
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.digests import FileRecord
from rl_core.files import fsync_tree, link_or_copy
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import read_amendments
from tasks.cache.manifests import (
    GROWING_FILE,
    StageManifest,
    WantedStage,
    altered_output,
    read_manifest,
    write_manifest,
)
from tasks.cache.stages import stage_digests

logger = logging.getLogger(__name__)

_RESULT: Final = ("evaluate-base", "evaluate-trained", "report")

Fetch = Callable[[str, str], bool]
"""Given name and digest, brings a stage into the run from the run's copy elsewhere. Returns whether it did."""


def find_complete(
    run: RunDirectory,
    wanted: WantedStage,
    *,
    elsewhere: bool = True,
    fetch: Fetch = lambda stage, digest: False,
) -> StageManifest | None:
    """Find a stage that is finished as it is wanted and whose files are unchanged. None where there is none.

    The stage is looked for in this run, then in the run's copy on a storage, from which `fetch` brings it here, then,
    if `elsewhere`, in the other runs in the same folder, from which it is taken over. A stage of this run or of its
    copy is valid whatever software made it; a stage of another run is taken over only if the same software made it.
    """
    own = own_manifest(run, wanted)
    if own is None and fetch(wanted.name, wanted.digest):
        own = own_manifest(run, wanted)
    if own is not None or not elsewhere:
        return own
    for other in other_runs(run):
        found = manifest_to_take(other, wanted)
        if found is not None:
            discard_stage(run, wanted.name)
            return adopt(found, source=other, into=run)
    return None


def own_manifest(run: RunDirectory, wanted: WantedStage) -> StageManifest | None:
    """The manifest of a stage in the run that wants it, if the stage is valid."""
    manifest = read_manifest(run, wanted.name)
    if manifest is None or wanted.is_outdated(manifest):
        return None
    return valid_manifest(run, wanted.name, wanted.digest)


def manifest_to_take(other: RunDirectory, wanted: WantedStage) -> StageManifest | None:
    """The manifest of a stage in another run, if the stage can be taken over."""
    manifest = read_manifest(other, wanted.name)
    if manifest is None or manifest.digest != wanted.digest:
        return None
    reason = wanted.why_not_taken(manifest)
    if reason is not None:
        logger.info("%s of %s is not taken over: %s", wanted.name, other.name, reason)
        return None
    return valid_manifest(other, wanted.name, wanted.digest)


def valid_manifest(run: RunDirectory, stage: str, digest: str) -> StageManifest | None:
    """The manifest of a stage in a run, if it has this digest and the stage's files are unchanged."""
    manifest = read_manifest(run, stage)
    if manifest is None or manifest.digest != digest:
        return None
    problem = altered_output(run.root, manifest.outputs)
    if problem:
        logger.warning("%s of %s is not valid any more: %s", stage, run.name, problem)
        return None
    return manifest


def is_finished(config: RunConfig, run: RunDirectory) -> bool:
    """Whether the stages that a run's result is made from are finished and valid."""
    try:
        digests = stage_digests(config, amendments=read_amendments(run))
    except ValueError:
        return False  # a file that the config names is not there: the run itself says so
    return all(valid_manifest(run, stage, digests[stage]) is not None for stage in _RESULT)


def why_not_taken(run: RunDirectory, wanted: WantedStage) -> str | None:
    """Why a stage is taken over from none of the runs that made it, the last changed first; None for no such run."""
    for other in other_runs(run):
        manifest = read_manifest(other, wanted.name)
        if manifest is not None and manifest.digest == wanted.digest:
            reason = wanted.why_not_taken(manifest) or "its files have changed"
            return f"not taken over from {other.name}: {reason}"
    return None


def why_made_again(run: RunDirectory, wanted: WantedStage) -> str | None:
    """Why a stage of this run is made again; None when it was not finished, or `valid_manifest` has logged it."""
    path = run.stage_manifest(wanted.name)
    if not path.exists():
        return None
    manifest = read_manifest(run, wanted.name)
    return f"{path} is damaged" if manifest is None else wanted.is_outdated(manifest)


def other_runs(run: RunDirectory) -> Iterator[RunDirectory]:
    """The other runs in the same folder, the most recently changed first. A run may be removed meanwhile."""
    changed = {}
    for folder in run.root.parent.glob("*/"):
        with suppress(OSError):
            if not (run.root.exists() and folder.samefile(run.root)) and (folder / "stages").is_dir():
                changed[folder] = (folder / "stages").stat().st_mtime_ns
    yield from map(RunDirectory, sorted(changed, key=changed.__getitem__, reverse=True))


def adopt(manifest: StageManifest, *, source: RunDirectory, into: RunDirectory) -> StageManifest | None:
    """Bring the files of a stage from another run into this one, and record where they come from. Returns None when the
    other run changed meanwhile, so that the stage has to be made."""
    if not _bring(manifest.outputs, source, into):
        return None
    taken = dataclasses.replace(manifest, reused_from=manifest.reused_from or source.name)
    write_manifest(into, taken)
    return taken


def _bring(outputs: Mapping[str, FileRecord], source: RunDirectory, into: RunDirectory) -> bool:
    try:
        for path, output in outputs.items():
            take_file(source.root / path, into.root / path, output)
    except FileNotFoundError:
        return False
    return altered_output(into.root, outputs) is None


def bring_folder(
    run: RunDirectory, wanted: WantedStage, folder: Path, *, fits: Callable[[StageManifest], bool]
) -> bool:
    """Bring one folder, which the wanted stage writes, from another run whose whole stage is another one, made by the
    same software, and whose manifest `fits`. Returns whether it is there now."""
    beginning = f"{folder.relative_to(run.root).as_posix()}/"
    for other in other_runs(run):
        manifest = read_manifest(other, wanted.name)
        if manifest is None or wanted.why_not_taken(manifest) is not None or not fits(manifest):
            continue
        outputs = {path: output for path, output in manifest.outputs.items() if path.startswith(beginning)}
        if altered_output(other.root, outputs) is None and _bring(outputs, other, run):
            logger.info("%s of %s is taken over", folder.name, other.name)
            return True
    return False


def take_file(source: Path, target: Path, output: FileRecord) -> None:
    """Link a file of a finished stage, or copy the part of the growing log that belongs to the stage."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if source.name == GROWING_FILE:
        target.write_bytes(source.read_bytes()[: output.size])
        return
    link_or_copy(source, target)


def place_files(source: Path, root: Path) -> None:
    """Link or copy all files below `source` to `root`. Files that refer to other files come last."""
    fsync_tree(source)
    paths = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.startswith("stages/"), path.endswith("/manifest.json"), path)):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        link_or_copy(source / path, target)


def set_aside(run: RunDirectory, stage: str) -> None:
    """Remove a stage that is made again. Where it is whole, it is moved to `RunDirectory.earlier` with its manifest."""
    if stage == "merge":
        set_aside(run, "model-card")  # whose file lies in the folder of the merged model
    manifest = read_manifest(run, stage)
    if manifest is not None and altered_output(run.root, manifest.outputs) is None:
        place = RunDirectory(run.earlier / manifest.digest[:12])
        for path in manifest.outputs:
            target = place.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            link_or_copy(run.root / path, target)
        write_manifest(place, manifest)
    discard_stage(run, stage)


def discard_stage(run: RunDirectory, stage: str) -> None:
    """Remove a finished or unfinished stage: its manifest first, so that no manifest lacks its files."""
    run.stage_manifest(stage).unlink(missing_ok=True)
    remove_paths(stage_paths(run, stage))


def stage_paths(run: RunDirectory, stage: str) -> tuple[Path, ...]:
    """The files and folders that belong only to this stage; of training, tasks.resuming.training_state knows them."""
    return {
        "prepare": (run.data, run.initial_model),
        "cold-start": (run.base_model,),
        "evaluate-base": (run.evaluation("base"),),
        "evaluate-trained": (run.evaluation("trained"),),
        "merge": (run.merged_model,),
        "model-card": (run.merged_model / "README.md",),
        "push": (),
        "report": (run.report, run.summary),
    }[stage]


def remove_paths(paths: Iterable[Path]) -> None:
    """Remove files and folders, as far as they exist."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
