"""A worker in a process of its own computes what one in this process computes, and its death is but an error."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForImageTextToText

from rl_core.config.run import RunConfig
from rl_core.files import folder_hashes
from rl_core.progress import SilentProgress
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import requests_for
from rl_core.run_directory import RunDirectory
from rl_core.training.agreement import AgreementError
from rl_core.training.batches import UpdateBatch
from rl_core.training.probing import ProbeMismatch
from rl_core.types import Prompt, Rollout, Sampling, TrainGroup
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.process_worker import ProcessWorker, WorkerDied
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import optimizer_batch, take_step


@pytest.fixture(scope="module")
def folders(prepared_run: RunDirectory) -> WorkerFolders:
    initial = prepared_run.initial_model
    return WorkerFolders(model=initial, base=initial, data=prepared_run.data, images_per_prompt=1)


@pytest.fixture(scope="module")
def apart(config: RunConfig, folders: WorkerFolders) -> Iterator[ProcessWorker]:
    worker = ProcessWorker(config, folders, total_optimizer_steps=100, progress=SilentProgress())
    yield worker
    worker.close()


def weights(workers: WorkerGroup, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    workers.export(folder)
    return dict(AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).state_dict())


def test_its_steps_are_those_of_a_worker_in_this_process(
    apart: ProcessWorker,
    worker: LocalWorker,
    prepared_run: RunDirectory,
    prompts: list[Prompt],
    config: RunConfig,
    rewards: RewardPool,
    tmp_path: Path,
) -> None:
    apart.load_policy(prepared_run.initial_model)
    for step in (1, 2):
        expected, found = (
            take_step(prompts, step=step, config=config, workers=workers, rewards=rewards)
            for workers in (worker, apart)
        )
        assert found.metrics == expected.metrics
        assert apart.policy_version == step
    expected, found = weights(worker, tmp_path / "here"), weights(apart, tmp_path / "there")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_generation_that_is_left_early_ends_there_too(
    apart: ProcessWorker, prepared_run: RunDirectory, prompts: list[Prompt], config: RunConfig
) -> None:
    apart.load_policy(prepared_run.initial_model)
    sampling = Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)
    requests = requests_for(prompts, 8, run_seed=1, step=1)
    with awake_generator(apart):
        rollouts = apart.generate(requests, sampling)
        first = next(rollouts)
        rollouts.close()
        assert first.key in {rollout.key for rollout in apart.generate(requests, sampling)}


def test_an_error_beside_a_generation_is_the_one_that_is_raised(
    apart: ProcessWorker, prepared_run: RunDirectory, prompts: list[Prompt], config: RunConfig
) -> None:
    """The traceback keeps the generation alive while the generator is put to rest."""
    apart.load_policy(prepared_run.initial_model)
    sampling = Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)

    def fail_in_the_middle(rollouts: Iterator[Rollout]) -> None:
        next(rollouts)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"), awake_generator(apart):
        fail_in_the_middle(apart.generate(requests_for(prompts, 8, run_seed=1, step=1), sampling))
    with awake_generator(apart):
        open_one = apart.generate(requests_for(prompts, 2, run_seed=1, step=1), sampling)
        next(open_one)
        with pytest.raises(RuntimeError, match="finish or close the earlier generation"):
            next(apart.generate(requests_for(prompts, 1, run_seed=1, step=1), sampling))
        assert len(list(open_one)) == 2 * len(prompts) - 1


def test_what_a_call_raises_there_is_raised_here_with_its_traceback(
    apart: ProcessWorker, prepared_run: RunDirectory, train_groups: list[TrainGroup], tmp_path: Path
) -> None:
    apart.load_policy(prepared_run.initial_model)
    apart.save_state(tmp_path, model_only=True, probe=groups_of(train_groups)[:1])
    probe = tmp_path / "probe" / "probe.json"
    content = json.loads(probe.read_text())
    content["items"][0]["log_probs"][0] += 0.01
    probe.write_text(json.dumps(content))
    with pytest.raises(ProbeMismatch) as mismatch:
        apart.load_saved_policy(tmp_path)
    assert "In the worker's process:" in "".join(mismatch.value.__notes__)
    apart.load_policy(prepared_run.initial_model)
    batch = UpdateBatch(policy=[optimizer_batch(train_groups)])
    apart.update(batch)
    with pytest.raises(AgreementError, match="no token of the optimizer batch could be compared"):
        apart.update(batch)


def test_a_snapshot_is_written_there_while_it_does_something_else(
    apart: ProcessWorker,
    worker: LocalWorker,
    prepared_run: RunDirectory,
    prompts: list[Prompt],
    train_groups: list[TrainGroup],
    config: RunConfig,
    tmp_path: Path,
) -> None:
    probe = groups_of(train_groups)[:1]
    for each in (apart, worker):
        each.load_policy(prepared_run.initial_model)
    expected = worker.save_state(tmp_path / "here", model_only=False, probe=probe)
    apart.take_snapshot(model_only=False, probe=probe)
    sampling = Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)
    with ThreadPoolExecutor(1) as thread, awake_generator(apart):
        rollouts = apart.generate(requests_for(prompts, 8, run_seed=1, step=1), sampling)
        next(rollouts)  # the worker waits for nothing but the next value to be taken
        written = thread.submit(apart.write_snapshot, tmp_path / "there").result(60)
        rollouts.close()
    assert written == expected
    assert folder_hashes(tmp_path / "there") == folder_hashes(tmp_path / "here")
    with pytest.raises(RuntimeError, match="call take_snapshot first"):
        apart.write_snapshot(tmp_path / "again")


def test_its_death_is_an_error_that_says_how_and_another_one_starts_clean(
    config: RunConfig, folders: WorkerFolders, train_groups: list[TrainGroup], tmp_path: Path
) -> None:
    groups = groups_of(train_groups)
    worker = ProcessWorker(config, folders, total_optimizer_steps=100, progress=SilentProgress())
    expected = worker.old_log_probs([groups])[0]
    kill_in_its_next_call(worker)
    with pytest.raises(WorkerDied, match=rf"{worker.pid} ended by signal 9 during old_log_probs"):
        worker.old_log_probs([groups])
    worker.close()
    other = ProcessWorker(config, folders, total_optimizer_steps=100, progress=SilentProgress())
    found = other.old_log_probs([groups])[0]
    assert [part.tobytes() for group in found for part in group] == [
        part.tobytes() for group in expected for part in group
    ]
    other.take_snapshot(model_only=True, probe=groups[:1])
    kill_in_its_next_call(other)
    with pytest.raises(WorkerDied, match=rf"{other.pid} ended before it had written {tmp_path}"):
        other.write_snapshot(tmp_path)
    other.close()


def kill_in_its_next_call(worker: ProcessWorker) -> None:
    """The worker stands still until it dies."""
    os.kill(worker.pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (worker.pid, signal.SIGKILL)).start()


def test_a_model_that_is_not_there_is_named_at_the_start(config: RunConfig, folders: WorkerFolders) -> None:
    nowhere = WorkerFolders(model=folders.model / "nowhere", base=folders.base, data=folders.data, images_per_prompt=1)
    with pytest.raises(Exception, match="nowhere"):
        ProcessWorker(config, nowhere, total_optimizer_steps=1, progress=SilentProgress())


SLEEPING_RUN = """
import sys, time
from pathlib import Path
from rl_core.config.loading import load_config
from rl_core.progress import SilentProgress
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.process_worker import ProcessWorker

model, data, config = map(Path, sys.argv[1:])
folders = WorkerFolders(model=model, base=model, data=data, images_per_prompt=1)
worker = ProcessWorker(load_config(config), folders, total_optimizer_steps=1, progress=SilentProgress())
print(worker.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_run_however_that_ends(prepared_run: RunDirectory, folders: WorkerFolders) -> None:
    config = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
    run = subprocess.Popen(
        [sys.executable, "-c", SLEEPING_RUN, folders.model, folders.data, config], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    try:
        worker = psutil.Process(int(run.stdout.readline()))
    finally:
        run.kill()
        run.wait()
    assert psutil.wait_procs([worker], timeout=60.0)[1] == [], "the worker outlives its run"
