"""Published Geometry3K items and CLEVR images through every stage."""

import json
from pathlib import Path

import pytest

from tests.e2e.runs import run_arguments, sightline, the_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.needs_samples("published Geometry3K and CLEVR items go through every stage of the pipeline"),
]


def test_real_items_are_prepared_trained_on_evaluated_and_merged(tmp_path: Path) -> None:
    sightline(*run_arguments(tmp_path, Path("tests/e2e/configs/real.yaml")), home=tmp_path, timeout=500)
    run = the_run(tmp_path / "runs")
    data = json.loads((run.data / "manifest.json").read_text())
    assert {name: split["rows"] for name, split in data["splits"].items()} == {"train": 10, "validation": 8}
    steps = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["step"] for line in steps] == [1, 2]
    assert all(line["agreement/log_prob_gap_max"] < 2e-5 for line in steps)
    summary = json.loads(run.summary.read_text())
    assert summary["evaluation"]["trained"]["n"] == 8
    assert (run.merged_model / "model.safetensors").is_file()
