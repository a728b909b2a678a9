"""A prepared small run with a random model, shared by the tests of the engine."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prepared import PreparedDataset
from rl_core.data.prompts import corpus
from rl_core.engine.folders import WorkerFolders
from rl_core.engine.local_worker import LocalWorker
from rl_core.engine.step import take_step
from rl_core.models.tiny import build_tiny_model
from rl_core.progress import SilentProgress
from rl_core.rewards.pool import RewardPool
from rl_core.run_directory import RunDirectory
from rl_core.types import Prompt, TrainGroup, TrainSample

SMALL = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"


@pytest.fixture(scope="session")
def config() -> RunConfig:
    return load_config(SMALL, ["cold_start=null", "trainer.val_freq=-1"])


@pytest.fixture(scope="session")
def prepared_run(tmp_path_factory: pytest.TempPathFactory, config: RunConfig) -> RunDirectory:
    """A run folder with initial model and data; tests that write copy what they need."""
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "small-test")
    texts = corpus(config.data, ["<answer>0123456789</answer>"])
    assert config.model.source.type == "tiny"
    build_tiny_model(config.model.source, run.initial_model, corpus=texts, seed=config.seed)
    prepare_dataset(config.data, model_folder=run.initial_model, out=run.data, progress=SilentProgress())
    return run


@pytest.fixture(scope="session")
def rewards(config: RunConfig) -> Iterator[RewardPool]:
    with RewardPool(config.reward) as pool:
        yield pool


@pytest.fixture(scope="session")
def shared_worker(config: RunConfig, prepared_run: RunDirectory, rewards: RewardPool) -> Iterator[LocalWorker]:
    worker = LocalWorker(
        config,
        WorkerFolders(
            model=prepared_run.initial_model,
            base=prepared_run.initial_model,
            data=prepared_run.data,
            images_per_prompt=1,
            videos_per_prompt=0,
        ),
        total_optimizer_steps=100,
    )
    yield worker
    worker.close()


OpenWorker = Callable[[RunConfig, WorkerFolders], AbstractContextManager[LocalWorker]]


@pytest.fixture(scope="session")
def open_worker(shared_worker: LocalWorker) -> OpenWorker:
    """Opens a worker of other settings for the length of a `with`. vLLM keeps what belongs to an engine in globals of
    the process, so the shared worker's engine ends first, and starts again when it is next needed."""

    @contextmanager
    def opened(config: RunConfig, folders: WorkerFolders) -> Iterator[LocalWorker]:
        shared_worker.close()
        worker = LocalWorker(config, folders, total_optimizer_steps=100)
        try:
            yield worker
        finally:
            worker.close()

    return opened


@pytest.fixture
def worker(shared_worker: LocalWorker, prepared_run: RunDirectory) -> LocalWorker:
    """The shared worker with the initial weights and no optimizer state."""
    shared_worker.load_policy(prepared_run.initial_model)
    return shared_worker


@pytest.fixture(scope="session")
def prompts(prepared_run: RunDirectory, config: RunConfig) -> list[Prompt]:
    dataset = PreparedDataset.open(prepared_run.data, "train")
    return [dataset[i] for i in range(config.data.rollout_batch_size)]


@pytest.fixture(scope="session")
def train_groups(
    prompts: list[Prompt],
    config: RunConfig,
    shared_worker: LocalWorker,
    prepared_run: RunDirectory,
    rewards: RewardPool,
) -> list[TrainGroup]:
    """Real rollouts of the initial model, cut to ragged lengths and given advantages, so that every token has a
    gradient (a random model earns no reward)."""
    shared_worker.load_policy(prepared_run.initial_model)
    record = take_step(prompts, step=1, config=config, workers=shared_worker, rewards=rewards)
    generator = np.random.default_rng(0)
    return [
        TrainGroup(prompt=group.prompt, samples=[ragged(sample, generator) for sample in group.samples])
        for group in record.trained
    ]


def ragged(sample: TrainSample, generator: np.random.Generator) -> TrainSample:
    length = int(generator.integers(1, len(sample.rollout.response_ids) + 1))
    log_probs = sample.rollout.log_probs[:length]
    rollout = replace(sample.rollout, response_ids=sample.rollout.response_ids[:length], log_probs=log_probs)
    advantages = np.full(length, generator.normal(), dtype=np.float32)
    return TrainSample(rollout=rollout, advantages=advantages, old_log_probs=log_probs)
