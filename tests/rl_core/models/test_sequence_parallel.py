"""Ranks that share their sequences come to the outputs and the gradient of one."""

from pathlib import Path

import pytest
import torch

from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.models.builders import FAMILIES, relative_difference, write_small_model
from tests.rl_core.models.sequence_ranks import CASES, computed, computed_together

RANKS = 4

Found = dict[tuple[str, str], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sequences")
    for family in FAMILIES:
        write_small_model(folder / family, family)
    return folder


@pytest.fixture(scope="module")
def alone(models: Path) -> Found:
    return {case: computed(models, *case, None) for case in CASES}


@pytest.fixture(scope="module")
def ranks(models: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each rank computed. There are fewer key/value heads than ranks; with 2 ranks, where there are not, see
    tests/rl_core/training/test_ranks.py."""
    return run_ranks(computed_together, tmp_path_factory.mktemp("ranks"), models, size=RANKS)


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_every_rank_has_all_outputs_and_the_gradients_add_up(
    alone: Found, ranks: list[Found], case: tuple[str, str]
) -> None:
    expected = alone[case]
    assert expected["gradient"].abs().max() > 0.0
    for found in ranks:
        for name in expected.keys() - {"gradient"}:
            torch.testing.assert_close(found[case][name], expected[name], rtol=1e-4, atol=1e-5)
    total = torch.stack([found[case]["gradient"] for found in ranks]).sum(dim=0)
    assert relative_difference(total, expected["gradient"]) < 1e-5
    # The control: no rank has the whole gradient already.
    assert relative_difference(ranks[0][case]["gradient"], expected["gradient"]) > 1e-2
