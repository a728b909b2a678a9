"""A config that was written for somebody's data is one that a run takes, whatever its file is called."""

import json
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from tasks.new_config import propose, write_config


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    rows = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "experiment"),
    [
        ("config.yaml", "config"),
        ("My clevr_v2.yaml", "my-clevr-v2"),
        ("größe.yaml", "gr-e"),
        ("试验.yaml", "experiment"),
        ("²³.yaml", "experiment"),
        ("x" * 58 + "-_yz.yaml", "x" * 58 + "-y"),
        ("y" * 59 + "_z.yaml", "y" * 59),
    ],
)
def test_the_experiment_is_named_after_the_file_in_ascii(
    data: Path, tmp_path: Path, name: str, experiment: str
) -> None:
    out = tmp_path / name
    proposal = propose(data, validation=None, model=None, folder=tmp_path / "data")
    written = write_config(proposal, out, max_prompt_length=64)
    assert written.experiment == experiment
    assert load_config(out) == written
