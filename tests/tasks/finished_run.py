"""The folder of a finished run, by the writers that real runs use: nothing is trained, everything can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rl_core.config.loading import apply_override, dump_config, validate_config
from rl_core.config.run import RunConfig
from rl_core.data.images import ImageStoreWriter
from rl_core.data.manifest import MANIFEST_FILE, DataManifest, LengthSummary, SplitSummary
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.evaluation.result import write_evaluation
from rl_core.files import atomic_write_json
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, describe_outputs, write_manifest
from tasks.cache.stages import run_name
from tests.rl_core.data.samples import png_bytes
from tests.rl_core.evaluation.builders import make_items
from tests.rl_core.tracking.runs import a_config


def config_with(*overrides: str) -> RunConfig:
    """The smallest config, with `key.path=value` texts laid over it."""
    tree = a_config().model_dump(mode="json")
    for override in overrides:
        apply_override(tree, override)
    return validate_config(tree, "test")


def finish_run(
    runs_dir: Path,
    *overrides: str,
    base: str = "----",
    trained: str = "++--",
    rewards: Sequence[float] = (0.1, 0.5),
    weights: str = "weights",
    mode: Mode = "greedy",
) -> RunDirectory:
    """Write a run whose items are right ("+") or wrong ("-"), with one image an item.

    Args:
        runs_dir: Folder of runs.
        overrides: Laid over the config.
        base: A sign an item, of the base model; `trained` likewise.
        trained: See `base`.
        rewards: Mean reward of each step, from 1.
        weights: Content of the merged model's file.
        mode: How the items were answered.
    """
    config = config_with(*overrides)
    run = RunDirectory(runs_dir / run_name(config))
    run.root.mkdir(parents=True)
    run.config.write_text(dump_config(config))
    _prepare(run)
    logs = RunLogs(run)
    for step, reward in enumerate(rewards, start=1):
        logs.log_step(step, {"reward/overall": reward, "reward/accuracy": reward})
    for evaluated, signs in (("base", base), ("trained", trained)):
        items = with_images(run, make_items(signs, mode=mode))
        results = write_evaluation(run.evaluation(evaluated), {mode: items})
        figures = {mode: result.model_dump(mode="json") for mode, result in results.items()}
        finish_stage(run, f"evaluate-{evaluated}", figures)
    run.merged_model.mkdir()
    (run.merged_model / "model.safetensors").write_text(weights)
    (run.merged_model / "README.md").write_text(f"# {run.name}\n")
    finish_stage(run, "merge", {"step": len(rewards)}, run.merged_model / "model.safetensors")
    return run


def with_images(run: RunDirectory, items: Sequence[EvaluationItem]) -> list[EvaluationItem]:
    """The items, each with an image of its own in the run's store."""
    with ImageStoreWriter(run.data / IMAGES_FILE) as images:
        colours = [(40 * number % 256, 90, 160) for number in range(len(items))]
        uids = [images.add(png_bytes((16, 16), colour)) for colour in colours]
    return [replace(item, image_uids=(uid,)) for item, uid in zip(items, uids, strict=True)]


def finish_stage(
    run: RunDirectory,
    stage: str,
    result: Mapping[str, object],
    *outputs: Path,
    digest: str = "d0",
    parts: Mapping[str, str] | None = None,
    software: Mapping[str, str] | None = None,
    finished_at: str = "2026-01-01T00:00:00+00:00",
) -> StageManifest:
    """Write the manifest of a stage that made `outputs`."""
    manifest = StageManifest(
        stage=stage,
        digest=digest,
        outputs=describe_outputs(run.root, outputs),
        result=result,
        seconds=1.5,
        finished_at=finished_at,
        parts=parts or {},
        software=software or {},
    )
    write_manifest(run, manifest)
    return manifest


def _prepare(run: RunDirectory) -> None:
    run.data.mkdir()
    lengths = LengthSummary(shortest=1, mean=1.0, p95=1, longest=1)
    split = SplitSummary(
        source="counting", read=8, rows=8, rejected=0, overlong=0, images=8, data_sources={}, prompt_tokens=lengths
    )
    manifest = DataManifest(fingerprint="f" * 16, splits={"train": split, "validation": split}, images=8, files={})
    atomic_write_json(run.data / MANIFEST_FILE, manifest.model_dump(mode="json"))
