"""Where the files of a local cluster are, and what is said if it does not start."""

import os
import tempfile
from pathlib import Path

import pytest

from rl_core.config.cluster import ClusterConfig
from rl_core.workers import local_ray
from rl_core.workers.local_ray import _LONGEST_FOLDER, LocalRay
from rl_core.workers.ray_cluster import ClusterUnavailable, RayCluster

LONGEST_SOCKET = 107
"""Bytes of a socket's path on Linux."""

LONGEST_PID = len("4194304")
"""Digits of the largest process id of Linux, which may be in the path."""


def test_a_cluster_starts_in_the_longest_folder_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the id of its process: a run's temporary folder below a TMPDIR of the user's is soon as long."""
    beginning = f"/tmp/{os.getpid()}-"
    folder = Path(beginning + "x" * (_LONGEST_FOLDER - len(beginning)))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", f"{folder}")
    local = LocalRay(ClusterConfig(device="cpu"))
    try:
        assert local._folder.parent == folder
        (session,) = [path for path in local._folder.glob("session_*") if not path.is_symlink()]
        missing = LONGEST_PID - len(session.name.rpartition("_")[2])
        sockets = [len(f"{path}") for path in (session / "sockets").iterdir()]
        assert 0 < max(sockets) + missing <= LONGEST_SOCKET
    finally:
        local.close()
    folder.rmdir()


def test_a_cluster_that_does_not_start_in_time_is_an_error_with_the_limit_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}")
    monkeypatch.setattr(local_ray, "_LONGEST_FOLDER", len(f"{tmp_path}"))
    said = r"no Ray cluster could be started on this machine: it did not start within 0\.01 s \(cluster\.start_ti"
    with pytest.raises(ClusterUnavailable, match=said):
        RayCluster(ClusterConfig(device="cpu", start_timeout_seconds=0.01))
    assert [*tmp_path.iterdir()] == []


def test_a_cluster_that_cannot_start_is_an_error_with_what_ray_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not as if its time were over."""
    folder = tmp_path / ("x" * LONGEST_SOCKET)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", f"{folder}")
    monkeypatch.setattr(local_ray, "_LONGEST_FOLDER", len(f"{folder}"))
    with pytest.raises(ClusterUnavailable, match=r"it ended while it started: (.*\n)*.*path length cannot exceed"):
        RayCluster(ClusterConfig(device="cpu"))
    assert [*folder.iterdir()] == []
