"""A prepared small run with a random model, and a worker of it: fixtures of tests/rl_core/conftest.py."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.loader import PromptLoader
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prepared import PreparedDataset
from rl_core.data.prompts import corpus
from rl_core.loop.step_recorder import StepRecorder
from rl_core.loop.training_loop import LoopParts, TrainingLoop
from rl_core.loop.validation import Validator
from rl_core.models.tiny import build_tiny_model
from rl_core.planning.batches import prompts_per_draw
from rl_core.progress import Progress, SilentProgress
from rl_core.rewards.pool import RewardPool
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest
from rl_core.types import Prompt, TrainGroup, TrainSample
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import WorkerGroup
from tasks.cache.named_files import located_config
from tests.rl_core.steps import take_step

SMALL = Path(__file__).parents[1] / "e2e" / "configs" / "small.yaml"
PARITY = f"{Path(__file__).parent / 'loop' / 'parity_reward.py'}:judge"
"""A reward that tells some prompts' responses apart and others' not."""


def small_config() -> RunConfig:
    return load_config(SMALL, ["cold_start=null", "trainer.val_freq=-1"])


def prepare(config: RunConfig, folder: Path) -> RunDirectory:
    """A run folder with initial model and data."""
    config, run = located_config(config), RunDirectory(folder)
    texts = corpus(config.data, ["<answer>0123456789</answer>"])
    assert config.model.source.type == "tiny"
    build_tiny_model(config.model.source, run.initial_model, corpus=texts, seed=config.seed)
    prepare_dataset(config.data, model_folder=run.initial_model, out=run.data, progress=SilentProgress())
    return run


def folders_of(run: RunDirectory) -> WorkerFolders:
    return WorkerFolders(model=run.initial_model, base=run.initial_model, data=run.data, images_per_prompt=1)


def small_worker(config: RunConfig, run: RunDirectory) -> LocalWorker:
    return LocalWorker(Opening(config=config, folders=folders_of(run), total_optimizer_steps=100))


def load_all(worker: LocalWorker, folder: Path) -> None:
    """Every model that the worker's settings ask for, with the weights of a folder."""
    config = worker.trainer.config
    worker.load("policy", folder)
    if config.algorithm.kl is not None:
        worker.load("reference", folder)
    if config.critic is not None:
        worker.load("critic", folder)


def loader_of(run: RunDirectory, config: RunConfig) -> PromptLoader:
    """The training prompts as a run draws them."""
    train = PreparedDataset.open(run.data, "train")
    return PromptLoader(train, batch_size=prompts_per_draw(config), seed=config.seed, shuffle=True)


def small_loop(
    folder: Path,
    config: RunConfig,
    workers: WorkerGroup,
    prepared_run: RunDirectory,
    *,
    rewards: RewardPool,
    judges: RewardPool,
    stop: StopRequest | None = None,
    progress: Progress | None = None,
) -> TrainingLoop:
    """A loop that writes into a folder of its own; it learns from one reward, and validates by another one."""
    run, silent = RunDirectory(folder), SilentProgress()
    validation = PreparedDataset.open(prepared_run.data, "validation")
    parts = LoopParts(
        workers=workers,
        rewards=rewards,
        loader=loader_of(prepared_run, config),
        validator=Validator(config=config, prompts=validation[:], rewards=judges, progress=silent),
        store=CheckpointStore(run.checkpoints, save_limit=2),
        recorder=StepRecorder(run),
        progress=progress or silent,
        stop=stop or StopRequest(),
    )
    return TrainingLoop(config, parts, base_model=prepared_run.initial_model)


OpenWorker = Callable[[RunConfig, WorkerFolders], AbstractContextManager[LocalWorker]]


def worker_opener(shared_worker: LocalWorker) -> OpenWorker:
    """What the fixture `open_worker` gives."""

    @contextmanager
    def opened(config: RunConfig, folders: WorkerFolders) -> Iterator[LocalWorker]:
        shared_worker.close()
        worker = LocalWorker(Opening(config=config, folders=folders, total_optimizer_steps=100))
        try:
            yield worker
        finally:
            worker.close()

    return opened


def first_prompts(run: RunDirectory, config: RunConfig) -> list[Prompt]:
    dataset = PreparedDataset.open(run.data, "train")
    return [dataset[i] for i in range(config.data.rollout_batch_size)]


def ragged_groups(
    prompts: list[Prompt], config: RunConfig, worker: LocalWorker, rewards: RewardPool
) -> list[TrainGroup]:
    """What the fixture `train_groups` gives."""
    record = take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)
    generator = np.random.default_rng(0)
    return [
        TrainGroup(prompt=group.prompt, samples=[ragged(sample, generator) for sample in group.samples])
        for group in record.learned.groups
    ]


def ragged(sample: TrainSample, generator: np.random.Generator) -> TrainSample:
    length = int(generator.integers(1, len(sample.rollout.response_ids) + 1))
    log_probs = sample.rollout.log_probs[:length]
    rollout = replace(sample.rollout, response_ids=sample.rollout.response_ids[:length], log_probs=log_probs)
    advantages = np.full(length, generator.normal(), dtype=np.float32)
    return TrainSample(rollout=rollout, advantages=advantages, old_log_probs=log_probs)
