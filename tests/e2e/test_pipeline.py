"""The whole pipeline from the command line: what it leaves, and what a second call does."""

import json
from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory

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
