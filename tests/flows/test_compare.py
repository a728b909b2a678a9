"""The compare flow writes the page and shows the figures in Prefect."""

from pathlib import Path

import pytest

from flows.compare import compare
from tests.flows.artifacts import artifacts_of
from tests.tasks.finished_run import finish_run

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_the_flow_hands_back_the_figures_and_leaves_a_page(tmp_path: Path) -> None:
    runs = [finish_run(tmp_path, f"rollout.n={n}", trained=signs) for n, signs in ((4, "+--"), (8, "++-"))]
    out = tmp_path / "page.html"
    state = compare([run.name for run in runs], out=str(out), runs_dir=str(tmp_path), return_state=True)
    assert state.is_completed(), state
    (comparison,) = state.result()["comparisons"]
    assert "8 and 4 do not differ significantly" in comparison["verdict"]
    assert out.is_file()
    (page,) = artifacts_of(state.state_details.flow_run_id)
    assert page.key == "comparison"
    assert "| 8 | 1 | 66.7 % | 20.8 % to 93.9 % | one seed | +33.3 | 1 |  |" in page.data
    assert str(out) in page.data
