"""A run whose data source, loss, advantage estimator and group filter are the user's, in files outside the package."""

import shutil
from pathlib import Path

import pytest

from flows.baseline import baseline
from rl_core.data.prepared import PreparedDataset
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory

pytestmark = [pytest.mark.usefixtures("prefect_server", "at_the_root"), pytest.mark.timeout(600)]

EXTENSIONS = Path("configs/extensions")


def overrides(mine: Path) -> list[str]:
    """The small config with everything of the user's, in short."""
    rows = f"{{type: custom, function: {mine}/drawn_sums.py:rows, kwargs: {{count: 16, "
    return [
        f"data.train={rows} seed: 1, held_out: false}}}}",
        f"data.validation={rows} seed: 2, held_out: true}}}}",
        f"algorithm.loss={{type: custom, function: {mine}/loss.py:truncated, kwargs: {{limit: 1.5}}}}",
        f"algorithm.advantage={{type: custom, function: {mine}/advantage.py:above_median}}",
        f"algorithm.online_filtering={{type: custom, function: {mine}/filter.py:differs, kwargs: {{least: 0.0}}}}",
        "reward={function: length, kwargs: {target_length: 2, max_length: 8}, workers: 1}",
        "evaluation={accuracy_key: overall, modes: [greedy]}",
        "tracking.mlflow_uri=null",
        "cold_start.steps=2",
        "trainer.max_steps=2",
        "trainer.val_freq=-1",
    ]


def test_it_trains_two_steps(tmp_path: Path) -> None:
    mine = shutil.copytree(EXTENSIONS, tmp_path / "mine")
    given = {"config": "tests/e2e/configs/small.yaml", "overrides": overrides(mine), "stages": "train"}
    state = baseline(**given, runs_dir=str(tmp_path / "runs"), return_state=True)
    assert state.is_completed(), state
    (run,) = (RunDirectory(path.parent) for path in (tmp_path / "runs").glob("*/config.yaml"))
    lines = [line for line in read(run.metrics) if line["step"] > 0]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["actor/grad_norm"] > 0.0 and "actor/truncated_share" in line for line in lines)
    assert all(line["filter/kept_share"] == 1.0 for line in lines)
    rows = PreparedDataset.open(run.data, "train")
    assert len(rows) == 16 and {prompt.data_source for prompt in rows} == {"rows"}
    for name in ("drawn_sums", "loss", "advantage", "filter"):
        (kept,) = run.inputs.glob(f"*/{name}.py")
        assert kept.read_bytes() == (mine / f"{name}.py").read_bytes()
