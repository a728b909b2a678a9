"""All ranks get the weights that the first one has read."""

import shutil
from pathlib import Path

import pytest

from tests.rl_core.distributed.broadcasts import CASES, differing
from tests.rl_core.distributed.spmd import free_port, run_ranks
from tests.rl_core.models.builders import write_small_model


@pytest.mark.parametrize(
    ("size", "ranks_per_node"), [pytest.param(2, 1, id="2"), pytest.param(4, 2, id="4", marks=pytest.mark.slow)]
)
def test_ranks_have_the_weights_of_one_although_only_the_first_can_read_them(
    size: int, ranks_per_node: int, tmp_path: Path
) -> None:
    for family in {case.family for case in CASES.values()}:
        write_small_model(tmp_path / "models" / family, family)
    without = shutil.copytree(tmp_path / "models", tmp_path / "without")
    for weights in without.rglob("*.safetensors"):
        weights.unlink()
    meetings = {name: f"tcp://127.0.0.1:{free_port()}" for name in CASES}
    models = tmp_path / "models"
    for found in run_ranks(differing, tmp_path, meetings, models, without, size=size, ranks_per_node=ranks_per_node):
        assert found == {name: [] for name in CASES}
