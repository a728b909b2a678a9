"""Workers in a Ray cluster compute what one in this process computes; their deaths and hangs are but errors."""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch

from flows.process.temporary_folder import sweep
from rl_core.config.run import RunConfig
from rl_core.cpu_switches import CPU_MODEL
from rl_core.digests import folder_records
from rl_core.environment import ALLOCATOR, with_these_sources
from rl_core.loop.step_metrics import update_metrics
from rl_core.progress import TALLY, SilentProgress, Tally
from rl_core.rollout.requests import requests_for
from rl_core.training.agreement import AgreementError
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.training.microbatches import response_tokens
from rl_core.types import Float32Array, GenerationRequest, RequestFeed, RolloutKey, Sampling, TrainGroup
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_ray import require_token
from rl_core.workers.messages import WorkerCall
from rl_core.workers.opening import open_workers
from rl_core.workers.protocol import WorkerDied, WorkerGroup, awake_generator
from rl_core.workers.ray_cluster import ClusterUnavailable, RayCluster
from rl_core.workers.ray_group import RayWorkerGroup
from rl_core.workers.ray_head import only_loopback
from tests.machines import SOON
from tests.processes import listening, pids_of
from tests.rl_core.builders import groups_of
from tests.rl_core.rollout.feeds import dripping
from tests.rl_core.steps import changed, save_state
from tests.servers import REPOSITORY


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[str]:
    """The address of a cluster with 3 CPUs that somebody else has started."""
    only_loopback()
    require_token()
    folder = Path(f"/tmp/ray-test-{os.getpid()}")  # the paths of sockets must be short
    folder.mkdir()
    theirs = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    head = subprocess.Popen(
        [sys.executable, "-P", "-m", "rl_core.workers.ray_head", folder, "3", "0"],
        env={**theirs, "PYTHONPATH": with_these_sources()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert head.stdin is not None and head.stdout is not None
    yield head.stdout.readline().strip()
    assert head.poll() is None, "a group has ended the cluster that it had joined"
    head.stdin.close()
    assert head.wait(60) == 0
    assert not folder.exists()


def on(config: RunConfig, address: str, **section: object) -> RunConfig:
    """The config with workers in the cluster at an address."""
    return changed(config, {"cluster.address": address, **{f"cluster.{key}": value for key, value in section.items()}})


class Groups:
    """Groups in the cluster, one at a time, since a process can be in one cluster only."""

    def __init__(self, cluster: str, folders: WorkerFolders, config: RunConfig) -> None:
        self._cluster, self._folders, self._config = cluster, folders, config
        self._shared: RayWorkerGroup | None = None

    def shared(self) -> RayWorkerGroup:
        """A group of one worker that lives until another group is wanted."""
        if self._shared is None:
            self._shared = self.fresh()
        return self._shared

    def fresh(self, **section: object) -> RayWorkerGroup:
        self.close()
        config = on(self._config, self._cluster, **section)
        group = open_workers(
            Opening(config=config, folders=self._folders, total_optimizer_steps=100), progress=SilentProgress()
        )
        assert isinstance(group, RayWorkerGroup)
        return group

    def in_a_cluster_of_its_own(self) -> RayWorkerGroup:
        """One worker, as on a machine with one GPU."""
        self.close()
        config = changed(self._config, {"cluster.device": "cpu"})
        group = open_workers(
            Opening(config=config, folders=self._folders, total_optimizer_steps=1), progress=SilentProgress()
        )
        assert isinstance(group, RayWorkerGroup) and group._cluster.local is not None
        return group

    def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()


@pytest.fixture(scope="module")
def groups(cluster, folders, config) -> Iterator[Groups]:
    groups = Groups(cluster, folders, config)
    yield groups
    groups.close()


@pytest.fixture
def group(groups) -> RayWorkerGroup:
    return groups.shared()


@pytest.fixture(scope="module")
def sampling(config) -> Sampling:
    return Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)


def as_bytes(log_probs: list[list[Float32Array]]) -> list[bytes]:
    return [part.tobytes() for of_group in log_probs for part in of_group]


def optimizer_batch(groups: list[TrainGroup]) -> OptimizerBatch:
    return OptimizerBatch.of(groups, longest_response=64)


def test_one_worker_in_a_cluster_computes_to_the_bit_what_one_here_does(
    group, worker, prepared_run, prompts, train_groups, sampling, tmp_path
):
    """Responses, log-probs, an update, a saved state; and it is counted here as one's own is."""
    groups = groups_of(train_groups)
    requests = requests_for(prompts, 2, run_seed=1, step=1)
    found = []
    for number, each in enumerate((worker, group)):
        each.load("policy", prepared_run.initial_model)
        before = TALLY.copy()
        with awake_generator(each):
            rollouts = {rollout.key: rollout for rollout in each.generate(requests, sampling)}
        assert len(rollouts) == len(requests)
        sampled = sum(len(rollout.response_ids) for rollout in rollouts.values())
        assert TALLY.since(before) == Tally(responses=len(requests), sampled=sampled)
        old = each.compute("old_log_probs", [groups[:3], groups[3:]])
        half = len(train_groups) // 2
        halves = [optimizer_batch(train_groups[:half]), optimizer_batch(train_groups[half:])]
        result = each.update(UpdateBatch(policy=halves, check_agreement=False))
        assert TALLY.since(before).passed == 2 * response_tokens(groups)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        written = save_state(each, folder, model_only=False, probe=groups[:1])
        found.append(
            (
                {key: (r.response_ids.tobytes(), r.log_probs.tobytes(), r.text) for key, r in rollouts.items()},
                [as_bytes(part) for part in old],
                result,
                written,
                folder_records(folder),
                each.policy_version,
            )
        )
    assert found[0] == found[1]


def test_errors_come_back_as_they_are_and_the_group_goes_on(group, prepared_run, train_groups):
    group.load("policy", prepared_run.initial_model)
    batch = UpdateBatch(policy=[optimizer_batch(train_groups)])
    group.update(batch)
    with pytest.raises(AgreementError, match="no token of the optimizer batch could be compared") as error:
        group.update(batch)
    assert "In the worker's process:" in "".join(error.value.__notes__)
    assert group.policy_version == 1
    with pytest.raises(OSError, match="nowhere"):
        group.load("policy", prepared_run.root / "nowhere")
    group.load("policy", prepared_run.initial_model)
    assert as_bytes(group.compute("old_log_probs", [groups_of(train_groups)])[0])


def test_a_generation_that_is_left_early_ends_and_the_next_one_is_whole(group, prompts, sampling):
    requests = requests_for(prompts, 4, run_seed=1, step=1)
    with awake_generator(group):
        left = group.generate(requests, sampling)
        next(left)
        with pytest.raises(RuntimeError, match="finish or close the earlier generation"):
            next(group.generate(requests, sampling))
        left.close()
        assert len(list(group.generate(requests, sampling))) == len(requests)
        next(group.generate(requests, sampling))  # left to the next call
    with pytest.raises(RuntimeError, match="generator"):
        next(group.generate(requests, sampling))


def by_sample(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The first ones of all groups before the second ones."""
    return sorted(requests, key=lambda one: one.sample_index)


def test_requests_that_come_in_the_middle_are_answered_and_the_generation_may_be_left_while_none_is_there(
    group, prompts, sampling
):
    requests = requests_for(prompts, 3, run_seed=1, step=1)
    with awake_generator(group):
        together = {one.key: one.log_probs.tobytes() for one in group.generate(requests, sampling)}
        feed = dripping(by_sample(requests), at_first=2 * len(prompts), pause=0.1)
        assert {one.key: one.log_probs.tobytes() for one in group.generate(feed, sampling)} == together
        left = group.generate(RequestFeed(requests[:2], list), sampling)
        next(left)
        next(left)
        left.close()  # nothing is generated, and nothing says that there will be no more
        with pytest.raises(ZeroDivisionError):
            list(group.generate(RequestFeed(requests[:2], lambda: [1 // 0]), sampling))
        assert len(list(group.generate(requests, sampling))) == len(requests)


def test_an_error_beside_a_generation_is_the_one_that_is_raised(group, prompts, sampling):
    """The traceback keeps the generation alive while the generator is put to rest."""

    def fail_in_the_middle(rollouts):
        next(rollouts)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"), awake_generator(group):
        fail_in_the_middle(group.generate(requests_for(prompts, 8, run_seed=1, step=1), sampling))


def test_a_snapshot_is_written_in_the_middle_of_a_generation(group, prompts, train_groups, sampling, tmp_path):
    group.take_snapshot(model_only=False, probe=groups_of(train_groups)[:1], copy=True)
    with ThreadPoolExecutor(1) as thread, awake_generator(group):
        rollouts = group.generate(requests_for(prompts, 8, run_seed=1, step=1), sampling)
        next(rollouts)
        written = thread.submit(group.write_snapshot, tmp_path).result(60)
        rollouts.close()
    assert folder_records(tmp_path).keys() >= written.keys()


Responses = dict[RolloutKey, tuple[bytes, bytes, str]]
"""Token ids, log-probs and text."""


@dataclass(frozen=True)
class Outcome:
    """What a training step leaves."""

    responses: Responses
    old_log_probs: list[Float32Array]
    metrics: dict[str, float]
    log_probs: list[Float32Array]


Step = Callable[[WorkerGroup], Outcome]


@pytest.fixture(scope="module")
def step(prepared_run, prompts, train_groups, sampling) -> Step:
    """Generate; recompute log-probs; update in two optimizer batches, the second with fewer groups than workers."""

    def take(group: WorkerGroup) -> Outcome:
        group.load("policy", prepared_run.initial_model)
        with awake_generator(group):
            rollouts = [*group.generate(requests_for(prompts, 3, run_seed=1, step=1), sampling)]
        groups = groups_of(train_groups)
        old = group.compute("old_log_probs", [groups])[0]
        parts = [optimizer_batch(train_groups[1:]), optimizer_batch(train_groups[:1])]
        result = group.update(UpdateBatch(policy=parts, check_agreement=False))
        return Outcome(
            responses={r.key: (r.response_ids.tobytes(), r.log_probs.tobytes(), r.text) for r in rollouts},
            old_log_probs=[part for of_group in old for part in of_group],
            metrics=update_metrics(result),
            log_probs=[part for of_group in group.compute("old_log_probs", [groups])[0] for part in of_group],
        )

    return take


def assert_same_tokens(found: Responses, expected: Responses) -> None:
    """The same tokens, and log-probs that are equal but for rounding."""
    assert found.keys() == expected.keys()
    for key, (tokens, log_probs, text) in expected.items():
        assert (found[key][0], found[key][2]) == (tokens, text)
        mine, theirs = (np.frombuffer(each, dtype=np.float32) for each in (found[key][1], log_probs))
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def fails_alone(group: RayWorkerGroup, train_groups: list[TrainGroup]) -> None:
    """An error of one worker, for which the other one waits in vain, is raised soon; then the workers are ended."""
    parts = [[groups_of(train_groups)], None]
    began = time.monotonic()
    with pytest.raises(TypeError) as error:
        group._workers.call_each([WorkerCall(method="compute", arguments=("old_log_probs", of)) for of in parts])
    assert time.monotonic() - began < SOON
    assert re.search(r"worker 1 of 2 \(process .* raised this; the others", "".join(error.value.__notes__))
    with pytest.raises(WorkerDied, match="open new ones"):
        group.compute("old_log_probs", [groups_of(train_groups)])


@pytest.fixture(scope="module")
def alone(shared_worker, step) -> Outcome:
    """A step of the worker in this process."""
    return step(shared_worker)


def assert_same_step(found: Outcome, alone: Outcome) -> None:
    """Equal tokens; all else is equal but for rounding, since sums over two workers round otherwise than over one."""
    assert_same_tokens(found.responses, alone.responses)
    assert found.metrics == pytest.approx(alone.metrics, rel=1e-4, abs=1e-6)
    for name, bound in (("old_log_probs", 1e-5), ("log_probs", 1e-3)):
        for mine, theirs in zip(getattr(found, name), getattr(alone, name), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=bound)


@pytest.mark.timeout(900)  # two workers start, on a busy machine
def test_two_workers_train_the_model_that_one_trains(
    groups, alone, step, prepared_run, prompts, train_groups, tmp_path, monkeypatch
):
    """With as many threads each, whatever OMP_NUM_THREADS says, responses are equal to the bit, and so are repeated
    steps. A state that two have saved, two load, to the bit. An error of one of them ends both."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    two = groups.fresh(devices=2, threads=torch.get_num_threads(), dealing="dynamic")
    found, again = step(two), step(two)
    written = save_state(two, tmp_path, model_only=False, probe=groups_of(train_groups)[:1])
    two.load("policy", prepared_run.initial_model)
    two.load("saved state", tmp_path)
    loaded = two.compute("old_log_probs", [groups_of(train_groups)])[0]
    version, used, later = two.policy_version, two.usage(), two.usage()
    assert later.sent_mib < used.sent_mib  # only what was sent since
    for worker in used.workers:
        assert worker.device == f"CPU with {torch.get_num_threads()} thread(s)"
        assert worker.seconds["generate_s"] > 0 and worker.seconds["update_s"] > 0
    assert [worker.seconds["update_s"] for worker in later.workers] == [0.0, 0.0]
    fails_alone(two, train_groups)
    two.close()

    assert len(alone.responses) == 3 * len(prompts)
    assert found.responses == again.responses == alone.responses
    assert found.metrics == again.metrics
    assert_same_step(found, alone)
    for name in ("old_log_probs", "log_probs"):
        for mine, repeated in zip(getattr(found, name), getattr(again, name), strict=True):
            assert mine.tobytes() == repeated.tobytes()
    assert as_bytes(loaded) == [part.tobytes() for part in found.log_probs]
    assert version == 1
    assert used.sent_mib > 0
    assert written.keys() <= folder_records(tmp_path).keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_that_compute_sequences_and_hold_a_generator_together_train_the_model_that_one_trains(
    groups, alone, step, prompts, sampling
):
    pair = groups.fresh(devices=2, threads=torch.get_num_threads(), sequence_parallel_size=2, tensor_parallel_size=2)
    together = step(pair)
    requests = requests_for(prompts, 3, run_seed=1, step=2)
    with awake_generator(pair):
        listed = {one.key: one.log_probs.tobytes() for one in pair.generate(requests, sampling)}
        feed = dripping(by_sample(requests), at_first=2 * len(prompts), pause=0.1)
        assert {one.key: one.log_probs.tobytes() for one in pair.generate(feed, sampling)} == listed
    pair.close()
    assert_same_step(together, alone)


def abort_with_a_child(worker: object, folder: Path) -> None:
    """As a library does whose device is broken, in the middle of a call."""
    child = subprocess.Popen(["sleep", "600"])
    (folder / "child").write_text(f"{child.pid}")
    os.abort()


def processes_and_folder(group: RayWorkerGroup) -> tuple[list[psutil.Process], Path]:
    """Of the cluster that a group has for itself."""
    local = group._cluster.local
    assert local is not None
    head = psutil.Process(local._head.pid)
    return [head, *head.children(recursive=True)], local._folder


def test_a_worker_that_aborts_leaves_nothing_and_another_group_starts_clean_and_outlives_sigterm(
    groups, train_groups, tmp_path
):
    """The worker has the settings of torch from its start on. systemd and Slurm send SIGTERM to all processes: the run
    writes a checkpoint before it ends, for which it needs its worker. A service that is lost is a dead worker; Ray by
    itself would end this process a minute after it."""
    asked = groups_of(train_groups)
    group = groups.in_a_cluster_of_its_own()
    (first,) = group.compute("old_log_probs", [asked])
    left, folder = processes_and_folder(group)
    assert {**ALLOCATOR, "CUDA_VISIBLE_DEVICES": ""}.items() <= psutil.Process(pids_of(group)[0]).environ().items()
    (actor,) = group._workers._actors
    actor.__ray_call__.remote(abort_with_a_child, tmp_path)
    named = rf"^worker 0 of 1 \(process {pids_of(group)[0]} on .*; it wrote last: .*(Aborted|SIGABRT)"
    with pytest.raises(WorkerDied, match=named) as died:
        group.compute("old_log_probs", [asked])
    assert "abort_with_a_child" in died.value.lost.stacks, "its stack is no part of the sentence"
    assert "\n" not in f"{died.value}"
    with pytest.raises(WorkerDied, match="open new ones"):
        group.compute("old_log_probs", [asked])
    left.append(psutil.Process(int((tmp_path / "child").read_text())))
    group.close()
    assert psutil.wait_procs(left, timeout=30.0)[1] == []
    assert not folder.exists()

    group = groups.in_a_cluster_of_its_own()
    try:
        processes, folder = processes_and_folder(group)
        for process in processes:
            process.terminate()
        assert psutil.wait_procs(processes, timeout=3.0)[0] == []
        (after,) = group.compute("old_log_probs", [asked])
        assert as_bytes(after) == as_bytes(first)
        next(process for process in processes if process.name() == "gcs_server").kill()
        assert psutil.wait_procs(processes, timeout=30.0)[1] == []
        with pytest.raises(WorkerDied, match="Ray on this machine has ended"):
            group.compute("old_log_probs", [asked])
    finally:
        group.close()
    assert not folder.exists()


def test_more_workers_than_the_cluster_has_room_for_are_named(groups):
    with pytest.raises(ClusterUnavailable, match=r"no 1 machine\(s\) with 4 CPU each that are free.*3 CPU free"):
        groups.fresh(devices=4, start_timeout_seconds=3.0)
    with pytest.raises(ClusterUnavailable, match=r"room for 3 of at least 4 worker\(s\)"):
        groups.fresh(devices=4, min_workers=4, wait_for_all_seconds=3.0)
    assert not ray.is_initialized()


def test_workers_of_a_joined_cluster_have_the_allocators_settings_before_torch_reads_them(
    groups, cluster, config, monkeypatch
):
    """They are the run's process's own, where it has some, as is the choice of the code for a CPU: who has started Ray
    knows nothing of the run."""

    def before_torch(_):  # not at the top of this module, which imports torch
        assert "torch" not in sys.modules
        return {name: os.environ.get(name) for name in (*ALLOCATOR, CPU_MODEL) if name in os.environ}

    groups.close()
    for name in ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    joined = RayCluster(on(config, cluster).cluster)
    try:
        (worker,) = joined.actors()
        assert ray.get(worker.__ray_call__.remote(before_torch)) == ALLOCATOR
        ray.kill(worker)
        own = dict.fromkeys(ALLOCATOR, "expandable_segments:False") | {CPU_MODEL: "0"}
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        (probe,) = joined.probes()
        assert ray.get(probe.__ray_call__.remote(before_torch)) == own
    finally:
        joined.close()


def test_a_cluster_that_is_not_there_is_named_at_once(groups, config, folders):
    groups.close()
    nowhere = on(config, "127.0.0.1:9")
    with pytest.raises(ClusterUnavailable, match=r"no Ray cluster at cluster\.address 127\.0\.0\.1:9: .*refused"):
        RayWorkerGroup(Opening(config=nowhere, folders=folders, total_optimizer_steps=1), progress=SilentProgress())


TOGETHER = ("cluster={devices: 2, tensor_parallel_size: 2}",)
"""Two workers that hold a generator together."""


@pytest.mark.parametrize(
    ("end", "overrides"),
    [
        pytest.param("kill", (), id="killed alone", marks=pytest.mark.slow),
        pytest.param("Ctrl-C", (), id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param("kill all", (), id="killed with its terminal", marks=pytest.mark.slow),
        pytest.param("kill", TOGETHER, id="generating, killed alone", marks=pytest.mark.slow),
    ],
)
def test_a_local_cluster_listens_on_loopback_only_and_leaves_nothing(prepared_run, folders, end, overrides):
    """No process, shared memory or temporary file: neither after a kill of the run alone, nor after Ctrl-C or a kill
    that reach all that share the run's terminal. What only the killed process could have removed, the next start
    removes."""
    config = REPOSITORY / "tests" / "e2e" / "configs" / "small.yaml"
    temporary = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # the paths of sockets must be short
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.rl_core.workers.group_run", folders.model, folders.data, config, *overrides],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
        env={**os.environ, "TMPDIR": f"{temporary}"},
    )
    assert run.stdin is not None and run.stdout is not None
    try:
        worker, head, folder = run.stdout.readline().split()
        if overrides:
            run.stdin.write("wake\n")
            run.stdin.flush()
            assert run.stdout.readline() == "awake\n"
        processes = [psutil.Process(int(worker)), psutil.Process(int(head))]
        assert processes[0].nice() == psutil.Process().nice(), "a worker has another priority than its run"
        addresses = listening(processes[0]) | listening(processes[1])
        processes += processes[1].children(recursive=True)
        shared = {Path(m.path) for p in processes for m in p.memory_maps() if m.path.startswith("/dev/shm/")}
        run.stdin.write("600\n")
        run.stdin.flush()
        match end:
            case "Ctrl-C":
                os.killpg(run.pid, signal.SIGINT)
            case "kill all":
                os.killpg(run.pid, signal.SIGKILL)
            case "kill":
                run.kill()
        status = run.wait(60)
    finally:
        run.kill()
    assert status == (-signal.SIGINT if end == "Ctrl-C" else -signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=60.0)[1] == [], "processes outlive their run"
    assert not Path(folder).exists()
    if status == -signal.SIGKILL:
        sweep(temporary)  # as at the next start
    assert [*temporary.iterdir()] == []
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert shared, "the control: there was shared memory, which may have lost its name before"
    assert [path for path in shared if path.exists()] == []
    temporary.rmdir()
