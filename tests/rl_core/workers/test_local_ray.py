"""Where the files of a local cluster are, and the error if it does not start."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from rl_core.config.cluster import ClusterConfig
from rl_core.workers import local_ray
from rl_core.workers.local_ray import _LONGEST_FOLDER, _short_folder
from rl_core.workers.ray_cluster import ClusterUnavailable, RayCluster
from tests.servers import REPOSITORY

LONGEST_SOCKET = 107
"""Bytes of a socket's path on Linux."""

LONGEST_PID = len("4194304")
"""Digits of the largest process id of Linux, which may be in the path."""


@pytest.fixture(scope="module")
def longest() -> Iterator[Path]:
    """The longest folder that is taken."""
    beginning = f"/tmp/{os.getpid()}-"
    folder = Path(beginning + "x" * (_LONGEST_FOLDER - len(beginning)))
    folder.mkdir()
    yield folder
    folder.rmdir()


@pytest.fixture(scope="module")
def started(longest) -> Iterator[tuple[RayCluster, set[object]]]:
    """A cluster in that folder, and the handlers of SIGTERM that this process had while it started."""
    handlers, has_joined = set(), threading.Event()

    def look():
        while not has_joined.wait(0.001):
            handlers.add(signal.getsignal(signal.SIGTERM))

    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", f"{longest}")
        watch = pool.submit(look)
        try:
            cluster = RayCluster(ClusterConfig(device="cpu"))
        finally:
            has_joined.set()
        watch.result()
    yield cluster, handlers
    cluster.close()


def test_a_cluster_starts_in_the_longest_folder_that_is_taken(started, longest):
    """Whatever the id of its process: a run's temporary folder below a TMPDIR of the user's is soon as long."""
    local = started[0].local
    assert local._folder.parent == longest
    (session,) = [path for path in local._folder.glob("session_*") if not path.is_symlink()]
    missing = LONGEST_PID - len(session.name.rpartition("_")[2])
    sockets = [len(f"{path}") for path in (session / "sockets").iterdir()]
    assert 0 < max(sockets) + missing <= LONGEST_SOCKET


def test_the_folder_is_where_temporary_files_go_as_long_as_paths_of_sockets_are_short(monkeypatch):
    """A run has a folder of its own in the machine's, which RAY_TMPDIR names."""
    found = []
    for own, machine in (("/scratch/a", "/scratch"), ("/scratch/" + "x" * 30, "/scratch"), ("/" + "x" * 40,) * 2):
        monkeypatch.setattr(tempfile, "tempdir", own)
        monkeypatch.setenv("RAY_TMPDIR", machine)
        found.append(_short_folder())
    assert found == ["/scratch/a", "/scratch", "/tmp"]


def test_the_runs_handler_of_sigterm_stays_in_place_while_a_cluster_starts(started):
    assert started[1] == {signal.getsignal(signal.SIGTERM)}


def test_a_worker_imports_as_the_run_does_and_is_no_first_victim_of_the_kernel(started, tmp_path, monkeypatch, capsys):
    """Whatever is beside the config. What it and its libraries write is seen, what they warn of is logged."""
    (tmp_path / "statistics.py").write_text("raise ImportError('not the library')")
    monkeypatch.chdir(tmp_path)

    def inside(_):
        import statistics

        assert statistics.mean([1, 3]) == 2
        print("a loss says this")  # noqa: T201 - as a user does
        os.write(2, b"a library says this\n")
        return sys.path, Path("/proc/self/oom_score_adj").read_text()

    def warn(actor):
        actor._logs.listen()
        warnings.warn("a library's option is deprecated", FutureWarning, stacklevel=1)
        return list(actor.pulse().logs)

    cluster, _ = started
    (worker,) = cluster.actors()
    path, score = ray.get(worker.__ray_call__.remote(inside))
    (logged,) = ray.get(worker.__ray_call__.remote(warn))
    cluster.close()
    assert logged.name == "py.warnings", "in the run's log, and not between the bars of the terminal"
    assert "FutureWarning: a library's option is deprecated" in logged.text
    assert {"a loss says this", "a library says this"} <= {*capsys.readouterr().err.splitlines()}
    assert path[0] == f"{REPOSITORY}"
    assert score == Path("/proc/self/oom_score_adj").read_text()


JOINED = """
import os, signal
from rl_core.config.cluster import ClusterConfig
from rl_core.workers.messages import Logged
from rl_core.workers.rank_actor import RankActor
from rl_core.workers.ray_cluster import RayCluster

signal.signal(signal.SIGTERM, lambda *_: print("the run's handler"))
cluster = RayCluster(ClusterConfig(device="cpu"))
os.kill(os.getpid(), signal.SIGTERM)
cluster.close()
"""


def test_a_signal_reaches_the_handler_of_the_run_and_not_that_of_rays_library():
    """Ray's prints the stack of C++, and aborts a process of many threads before the run can save its step."""
    process = subprocess.run([sys.executable, "-c", JOINED], capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0
    assert process.stdout == "the run's handler\n"
    assert "SIGTERM received" not in process.stderr


def test_a_cluster_that_does_not_start_in_time_is_an_error_with_the_limit_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}")
    monkeypatch.setattr(local_ray, "_LONGEST_FOLDER", len(f"{tmp_path}"))
    message = r"no Ray cluster could be started on this machine: it did not start within 0\.01 s \(cluster\.start_ti"
    with pytest.raises(ClusterUnavailable, match=message):
        RayCluster(ClusterConfig(device="cpu", start_timeout_seconds=0.01))
    assert [*tmp_path.iterdir()] == []
