"""The most that a run took is read from its timings, phase by phase."""

from pathlib import Path

import pytest

from rl_core.planning.gpu import Gpu
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.results.measured_memory import measured_peaks, recorded_machine


@pytest.fixture
def run(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    with RunLock(run.lock):
        yield run


def test_the_highest_peak_of_all_steps_counts(run: RunDirectory) -> None:
    logs = RunLogs(run)
    logs.log_timing(1, {"total_s": 1.0, "generate_peak_gib": 1.5, "update_peak_gib": 2.0})
    logs.log_timing(2, {"total_s": 1.0, "generate_peak_gib": 1.4, "update_peak_gib": 2.5, "save_peak_gib": 2.1})
    logs.log_timing(3, {"total_s": 1.0, "generate_peak_gib": 1.6, "update_gpu_used_gib": 70.0})
    assert measured_peaks(run, on_gpu=False) == {"generate": 1.6, "update": 2.5, "save": 2.1}
    assert measured_peaks(run, on_gpu=True) == {"update": 70.0}


def test_a_run_of_a_version_that_measured_nothing_has_no_peaks(run: RunDirectory) -> None:
    assert measured_peaks(run, on_gpu=False) == {}
    RunLogs(run).log_timing(1, {"total_s": 1.0})
    assert measured_peaks(run, on_gpu=False) == {}


def test_the_machine_is_the_one_of_the_last_settings(run: RunDirectory) -> None:
    assert recorded_machine(run) == (None, True)
    logs = RunLogs(run)
    logs.log_event("settings", chosen={}, why="", changed={}, on_gpu=True, gpu_gib=79.6)
    assert recorded_machine(run) == (Gpu(memory_gib=79.6), True)
    logs.log_event("settings", chosen={}, why="", changed={}, on_gpu=True, gpu_gib=None)
    assert recorded_machine(run) == (Gpu(memory_gib=None), False)
    logs.log_event("settings", chosen={}, why="", changed={}, on_gpu=False, gpu_gib=None)
    assert recorded_machine(run) == (None, True)


def test_a_run_that_chose_nothing_was_on_a_gpu_if_it_measured_one(run: RunDirectory) -> None:
    RunLogs(run).log_timing(1, {"total_s": 1.0, "update_gpu_used_gib": 70.0})
    assert recorded_machine(run) == (Gpu(memory_gib=None), False)
