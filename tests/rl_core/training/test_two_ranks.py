"""Trainer parts on different data: two ranks over gloo come to the gradient and the metrics of one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rl_core.loop.step_metrics import token_means
from tests.rl_core.models.builders import relative_difference, write_small_model
from tests.rl_core.training.two_ranks import computed

ROOT = Path(__file__).parents[3]


def test_two_ranks_come_to_the_gradient_and_the_metrics_of_one(tmp_path: Path) -> None:
    write_small_model(tmp_path / "model", "qwen2_5_vl")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.rl_core.training.two_ranks", str(rank), str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    expected, tokens = computed(tmp_path / "model", slice(None))
    for rank in ranks:
        _, errors = rank.communicate(timeout=250)
        assert rank.returncode == 0, errors
    found, gathered = pickle.loads((tmp_path / "found.pickle").read_bytes())
    assert relative_difference(torch.from_numpy(found), expected) < 1e-5
    assert token_means(gathered) == pytest.approx(token_means(tokens), rel=1e-5)
    assert token_means(gathered).keys() >= {"actor/pg_loss", "actor/entropy"}
    # The control: each rank with denominators of its own would come to something else.
    halves = [computed(tmp_path / "model", slice(rank, None, 2))[0] for rank in range(2)]
    assert relative_difference(halves[0], expected) > 1e-2
