"""What each worker does of a step."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.loading import load_config
from rl_core.planning.worker_share import Share, WorkerShare

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "configs" / "quickstart.yaml"


@given(things=st.integers(0, 1000), workers=st.integers(1, 64))
def test_shares_add_up_and_differ_by_one_at_most(things: int, workers: int) -> None:
    share = Share.of(things, workers)
    assert share.most - share.least <= 1
    assert share.least * workers <= things <= share.most * workers
    assert str(share) == (f"{share.least}" if things % workers == 0 else f"{share.least} or {share.most}")


@pytest.mark.parametrize(("devices", "prompts", "n", "step"), [(8, 512, 5, 128), (2, 512, 5, 128), (8, 64, 8, 16)])
def test_the_examples_of_the_documentation(devices: int, prompts: int, n: int, step: int) -> None:
    """The table of docs/batch_sizes.md; for its first two sizes these are EasyR1's numbers."""
    config = load_config(
        QUICKSTART,
        [
            f"data.rollout_batch_size={prompts}",
            f"rollout.n={n}",
            f"actor.global_batch_size={step}",
            f"cluster.devices={devices}",
        ],
    )
    share = WorkerShare.of(config)
    row = next(
        line
        for line in (ROOT / "docs" / "batch_sizes.md").read_text().splitlines()
        if line.startswith(f"| {devices} | {prompts} | {n} | {step} |")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4] == f"{prompts * n:,}"
    assert cells[5] == f"{share.prompts.most * n:,} responses"
    assert cells[6:8] == [f"{prompts // step}", f"{step * n:,}"]
    assert cells[8] == f"{share.groups.most} groups = {share.groups.most * n} responses"
