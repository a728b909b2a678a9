"""Text, one image, many images, video and mixtures in one batch: engine and trainer agree, and learn."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prepared import PreparedDataset
from rl_core.data.prompts import corpus
from rl_core.loop.step_recorder import StepRecord
from rl_core.models.loading import load_model, write_hf_folder
from rl_core.models.pixels import PixelCache
from rl_core.models.tiny import build_tiny_model
from rl_core.progress import SilentProgress
from rl_core.rewards.pool import RewardPool
from rl_core.run_directory import RunDirectory
from rl_core.training.agreement import AgreementError
from rl_core.types import Group, Prompt
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.data.samples import write_video
from tests.rl_core.small_run import SMALL
from tests.rl_core.steps import take_step

BOUND = 2e-5
ROWS_OF_A_KIND = 4
SIZES = {"text": [], "one": [(56, 56)], "many": [(84, 84), (56, 112), (140, 56)], "video": []}
KINDS = (*SIZES, "mixed")


def write_rows(folder: Path, name: str, *, seed: int) -> Path:
    """Rows of every kind, noise for images, the kind in a column of its own."""
    noise = np.random.default_rng(seed)
    rows = []
    for kind, sizes in SIZES.items():
        for number in range(ROWS_OF_A_KIND):
            images = [f"{name}-{kind}-{number}-{place}.png" for place in range(len(sizes))]
            for image, (width, height) in zip(images, sizes, strict=True):
                Image.fromarray(noise.integers(0, 256, (height, width, 3), np.uint8)).save(folder / image)
            videos = []
            if kind == "video":
                videos = [f"{name}-{number}.avi"]
                write_video(folder / videos[0], noise.integers(0, 256, (20 + 4 * number, 64, 96, 3), np.uint8), fps=10)
            places = " and ".join(["<image>"] * len(sizes) + ["<video>"] * len(videos))
            question = f"{places}How many of {number} {name} objects?"
            rows.append({"problem": question, "images": images, "videos": videos, "answer": str(number), "kind": kind})
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@dataclass(frozen=True)
class MediaBench:
    """A worker on rows of every kind."""

    config: RunConfig
    run: RunDirectory
    worker: LocalWorker
    rewards: RewardPool

    def prompts(self, kind: str, *, split: str = "train") -> list[Prompt]:
        rows = list(PreparedDataset.open(self.run.data, split))
        if kind == "mixed":
            return rows[:: ROWS_OF_A_KIND + 1]
        return [row for row in rows if row.extra["kind"] == kind]

    def step(self, number: int, prompts: list[Prompt]) -> StepRecord:
        return take_step(prompts, step=number, config=self.config, workers=self.worker, rewards=self.rewards)


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def bench(request, tmp_path_factory, open_worker) -> Iterator[MediaBench]:
    folder = tmp_path_factory.mktemp(request.param)
    sources = {name: write_rows(folder, name, seed=seed) for seed, name in enumerate(["training", "held-out"])}
    config = load_config(
        SMALL,
        [
            "cold_start=null",
            f"model.source.family={request.param}",
            "data.max_prompt_length=640",
            f"data.train={{type: local, path: {sources['training']}}}",
            f"data.validation={{type: local, path: {sources['held-out']}}}",
        ],
    )
    run = RunDirectory(folder / "run")
    build_model(config, run, scratch=folder / "faint")
    prepare_dataset(config.data, model_folder=run.initial_model, out=run.data, progress=SilentProgress())
    with RewardPool(config.reward) as rewards:
        folders = WorkerFolders(
            model=run.initial_model, base=run.initial_model, data=run.data, images_per_prompt=3, videos_per_prompt=1
        )
        with open_worker(config, folders) as worker:
            yield MediaBench(config=config, run=run, worker=worker, rewards=rewards)


def build_model(config: RunConfig, run: RunDirectory, *, scratch: Path) -> None:
    """A tiny model whose answers depend on its images: larger weights than those it would start training with."""
    assert config.model.source.type == "tiny"
    build_tiny_model(config.model.source, scratch, corpus=corpus(config.data), seed=config.seed)
    model = load_model(scratch, config.model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    write_hf_folder(model, processor_folder=scratch, folder=run.initial_model)


@pytest.mark.parametrize("kind", KINDS)
def test_engine_and_trainer_agree_while_it_learns(bench, kind):
    bench.worker.load("policy", bench.run.initial_model)
    for number in (1, 2):
        record = bench.step(number, bench.prompts(kind))
        assert record.metrics["agreement/log_prob_gap_max"] < BOUND
        assert len(record.collected.generated.groups) == ROWS_OF_A_KIND


def test_another_pace_of_a_video_is_noticed(bench):
    """The control: frames without their times would agree too if nothing looked at the times."""
    bench.worker.load("policy", bench.run.initial_model)
    prompts = bench.prompts("video")
    record = bench.step(1, prompts)
    faster = [replace(clip, fps=2.3 * clip.fps) for clip in prompts[0].videos]
    changed = [replace(prompts[0], videos=tuple(faster)), *prompts[1:]]
    groups = [
        Group(prompt=prompt, rollouts=group.rollouts)
        for prompt, group in zip(changed, record.collected.generated.groups, strict=True)
    ]
    bench.worker.load("policy", bench.run.initial_model)
    first, *others = bench.worker.compute("old_log_probs", [groups])[0]
    gaps = [
        max(float(np.abs(found - rollout.log_probs).max()) for found, rollout in zip(own, group.rollouts, strict=True))
        for own, group in zip([first, *others], groups, strict=True)
    ]
    assert max(gaps[1:]) < BOUND
    # Qwen3-VL reads the time in its prompt, not in its positions.
    assert (gaps[0] > BOUND) == (bench.config.model.source.family == "qwen2_5_vl")


def test_images_in_another_order_are_noticed(bench, monkeypatch):
    """The control: a model that does not look at its images would agree whatever it is shown."""
    bench.worker.load("policy", bench.run.initial_model)
    prompts = bench.prompts("one")
    shown = dict(zip([p.image_uids[0] for p in prompts], [p.image_uids[0] for p in prompts[::-1]], strict=True))
    trainer = bench.worker.trainer
    other = PixelCache(bench.run.initial_model, trainer.pixels.images)
    monkeypatch.setattr(trainer, "pixels", other)
    get = other.get
    monkeypatch.setattr(other, "get", lambda uids: get([shown[uid] for uid in uids]))
    with pytest.raises(AgreementError):
        bench.step(1, prompts)
