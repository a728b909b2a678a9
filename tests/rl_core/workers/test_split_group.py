"""A worker that generates and one that trains: the numbers of a worker that does both, and the overlap."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_core.config.model import LoraConfig
from rl_core.config.run import RunConfig
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.rollout.requests import requests_for
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import Group, Sampling
from rl_core.workers.folders import Opening
from rl_core.workers.opening import open_workers
from rl_core.workers.protocol import WorkerDied, awake_generator
from rl_core.workers.split_group import SplitWorkerGroup
from tests.processes import pids_of
from tests.results import differences, hashes
from tests.rl_core.small_run import folders_of, small_loop
from tests.rl_core.steps import changed


@contextmanager
def split_group(config: RunConfig, prepared_run: RunDirectory, **cluster: object) -> Iterator[SplitWorkerGroup]:
    """Workers that train and workers that generate, by the section `cluster`."""
    split = config.cluster.model_copy(update={"placement": "split", **cluster})
    group = open_workers(
        Opening(
            config=config.model_copy(update={"cluster": split}),
            folders=folders_of(prepared_run),
            total_optimizer_steps=100,
        ),
        progress=SilentProgress(),
    )
    assert isinstance(group, SplitWorkerGroup)
    try:
        yield group
    finally:
        group.close()


@pytest.fixture
def group(config, prepared_run) -> Iterator[SplitWorkerGroup]:
    """One worker that trains and one that generates, with as many threads as the worker here."""
    with split_group(config, prepared_run, devices=2, threads=torch.get_num_threads()) as group:
        yield group


def metrics(folder: Path) -> list[Mapping[str, Any]]:
    """What follows from the rollouts that are learned from; the comparison with the generator may use others."""
    lines = read(RunDirectory(folder).metrics)
    return [{name: value for name, value in line.items() if "agreement/" not in name} for line in lines]


def test_a_generator_beside_the_trainer_gives_the_numbers_of_a_worker_that_does_both(
    group, worker, config, rewards, parity, prepared_run, tmp_path
):
    """To the bit: on-policy, and one step off, where the responses are generated while the update runs. At last the run
    goes on from its checkpoint, and the generator dies during an update."""
    configs = [changed(config, {"trainer.val_freq": 3, "rollout.staleness": staleness}) for staleness in (0, 1)]
    given = {"prepared_run": prepared_run, "rewards": parity, "judges": rewards}
    for chosen in configs:
        folders = {name: tmp_path / f"{name}-{chosen.rollout.staleness}" for name in ("here", "split")}
        for name, workers in (("here", worker), ("split", group)):
            small_loop(folders[name], chosen, workers, **given).train_epoch(1)
        kept = ("rollouts/*", "validations/*", "checkpoints/step-000003/**/*")
        assert differences(*(hashes(folder, kept) for folder in folders.values())) == []
        assert metrics(folders["here"]) == metrics(folders["split"])
        lines = read(RunDirectory(folders["split"]).metrics)[1:]
        assert all(line["agreement/log_prob_gap_max"] < 2e-5 and line["actor/grad_norm"] > 0.0 for line in lines)
    timings = read(RunDirectory(folders["split"]).timings)
    assert all("generate_wait_s" in line and "generate_s" not in line for line in timings[1:])

    loop = small_loop(folders["split"], configs[1], group, **given)  # goes on after step 3
    os.kill(pids_of(group)[1], signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"generating worker 0 of 1 .* ended during"):
        loop.train_epoch(2)


@pytest.mark.slow
@pytest.mark.timeout(900)  # four workers start, on a busy machine
@pytest.mark.parametrize(
    ("sharding", "lora", "sent"),
    [
        ("full", None, ["weights", "weights"]),
        ("none", None, ["weights", "weights"]),
        ("full", LoraConfig(rank=4, generator_weights="separate"), ["weights", "adapters", "adapters"]),
    ],
    ids=["full", "none", "adapters"],
)
def test_two_trainers_give_their_weights_to_two_generators(
    sharding, lora, sent, config, prepared_run, prompts, train_groups, monkeypatch
):
    """Before an update and after it, the generators' log-probs are those of the trainers."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sampling = Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)
    update = UpdateBatch(policy=[OptimizerBatch.of(train_groups, longest_response=64)], check_agreement=False)
    config = changed(config, {"model.lora": lora})
    received, transfer = [], SplitWorkerGroup._transfer
    monkeypatch.setattr(SplitWorkerGroup, "_transfer", lambda self, what: (received.append(what), transfer(self, what)))
    with split_group(config, prepared_run, devices=4, generating_devices=2, sharding=sharding) as group:
        group.load("policy", prepared_run.initial_model)
        for version in (0, 1):
            with awake_generator(group):
                rollouts = [*group.generate(requests_for(prompts, 3, run_seed=1, step=1), sampling)]
            assert {rollout.policy_version for rollout in rollouts} == {version}
            groups = [
                Group(prompt=prompt, rollouts=[one for one in rollouts if one.prompt_uid == prompt.uid])
                for prompt in prompts
            ]
            assert sum(len(each.rollouts) for each in groups) == 3 * len(prompts)
            for each, computed in zip(groups, group.compute("old_log_probs", [groups])[0], strict=True):
                for rollout, log_probs in zip(each.rollouts, computed, strict=True):
                    np.testing.assert_allclose(rollout.log_probs, log_probs, atol=2e-5)
            group.update(update)
    assert received == sent
