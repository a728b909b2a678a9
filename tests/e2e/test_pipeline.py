"""The whole pipeline from the command line: what it leaves, and what a second call does."""

import json
import shutil
from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.runs import fingerprint, run_arguments, sightline, the_run
from tests.results import differences

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_summary_says_what_a_person_wants_to_know(finished: RunDirectory) -> None:
    summary = json.loads(finished.summary.read_text())
    for evaluated in ("base", "trained"):
        result = summary["evaluation"][evaluated]
        assert result["n"] == 10
        low, high = result["ci95"]
        assert 0.0 <= low <= result["accuracy"] <= high <= 1.0
    assert {"prepare", "cold-start", "train-epoch-001", "train-epoch-002", "merge"} <= summary["timings_s"].keys()
    assert summary["throughput"]["samples_per_s"] > 0
    assert Path(summary["merged_model"], "config.json").is_file()
    assert "<html" in Path(summary["report"]).read_text()


def test_metrics_hold_each_step_once_and_the_engines_agreement(finished: RunDirectory) -> None:
    lines = [json.loads(line) for line in finished.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4, 5, 6]
    assert all(line["agreement/log_prob_gap_max"] < 2e-5 for line in lines[1:])
    assert all("val/accuracy" in lines[step] for step in (0, 3, 6))


@pytest.mark.slow
def test_a_second_call_finds_every_stage_finished_without_the_databases_too(
    finished: RunDirectory, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    shutil.copytree(finished.root, tmp_path / "runs" / finished.name)
    output = sightline(*run_arguments(tmp_path), home=tmp_path).stdout
    stages = [line for line in output.splitlines() if line.startswith("✓")]
    assert stages
    assert all("finished before" in line for line in stages), output
    assert differences(fingerprint(finished), fingerprint(the_run(tmp_path / "runs"))) == []
