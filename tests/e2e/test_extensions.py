"""What a person brings in a file of their own, outside the package, trains from the command line."""

import json
import shutil
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.data.prepared import PreparedDataset
from tests.e2e.runs import REPOSITORY, run_arguments, sightline, the_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXTENSIONS = REPOSITORY / "configs" / "extensions"


def test_a_data_source_of_ones_own_trains_two_steps(new_home: Path) -> None:
    own = new_home / "own"
    own.mkdir()
    source = shutil.copy(EXTENSIONS / "drawn_sums.py", own / "sums_of_mine.py")
    function = f"function={source}:rows"
    arguments = run_arguments(
        new_home,
        EXTENSIONS / "drawn_sums.yaml",
        *(f"{key}.{function}" for key in ("data.train", "data.validation", "cold_start.source")),
        *("data.train.kwargs.count=8", "data.validation.kwargs.count=4", "cold_start.source.kwargs.count=8"),
        *("data.rollout_batch_size=4", "actor.global_batch_size=4", "rollout.n=2", "rollout.max_response_length=6"),
        *("cold_start.steps=2", "cold_start.batch_size=4", "trainer.max_steps=2", "reward.workers=1"),
        *("model.source.num_layers=1", "model.source.vision_depth=1"),
    )
    planned = sightline("plan", *arguments[1:], home=new_home).stdout
    assert "to do; the rows are counted first" in planned
    sightline(*arguments, home=new_home, timeout=700)
    run = the_run(new_home / "runs")
    assert [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()][-1] == 2
    rows = PreparedDataset.open(run.data, "train")
    assert len(rows) == 8 and {prompt.data_source for prompt in rows} == {"rows"}
    (kept,) = run.inputs.glob("*/sums_of_mine.py")
    assert kept.read_bytes() == source.read_bytes()
    # What was prepared is prepared, whatever became of the file.
    source.unlink()
    again = sightline("run", "--resume", run.name, "--runs-dir", str(run.root.parent), home=new_home).stdout
    assert "finished before" in again and load_config(run.config).data.train.type == "custom"
