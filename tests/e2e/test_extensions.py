"""A data source, a loss, an advantage estimator and a group filter of one's own in one run, from the terminal and
through all stages, with two workers. tests/flows/test_extensions.py trains with them in every test run."""

import json
import shutil
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.data.prepared import PreparedDataset
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import prefect_server
from tests.e2e.runs import REPOSITORY, SMALL, run_arguments, sightline, the_run

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

EXTENSIONS = REPOSITORY / "configs" / "extensions"

IN_SHORT = (
    "cold_start.steps=2",
    "trainer.max_steps=2",
    "trainer.val_freq=-1",
    "reward={function: length, kwargs: {target_length: 2, max_length: 8}, workers: 1}",
    "evaluation={accuracy_key: overall, modes: [greedy]}",
)


def test_two_steps_with_a_source_a_loss_an_estimator_and_a_filter_of_ones_own(new_home: Path) -> None:
    mine = shutil.copytree(EXTENSIONS, new_home / "mine")
    source = (mine / "drawn_sums.py").rename(mine / "sums_of_mine.py")
    config = mine / "own.yaml"
    config.write_text(
        f"extends: {SMALL}\n"
        "experiment: own\n"
        "algorithm:\n"
        f"  loss: {{type: custom, function: {mine}/loss.py:truncated, kwargs: {{limit: 1.5}}}}\n"
        f"  advantage: {{type: custom, function: {mine}/advantage.py:above_median}}\n"
        f"  online_filtering: {{type: custom, function: {mine}/filter.py:differs, kwargs: {{least: 0.0}}}}\n"
    )
    sources = [
        f"{key}={{type: custom, function: {source}:rows, kwargs: {{count: 16, seed: {seed}, held_out: {held_out}}}}}"
        for key, seed, held_out in (
            ("data.train", 1, False),
            ("data.validation", 2, True),
            ("cold_start.source", 3, False),
        )
    ]
    arguments = run_arguments(new_home, config, *sources, *IN_SHORT, "cluster={devices: 2, sharding: none}")

    wrong = sightline("plan", *arguments[1:], "algorithm.loss.kwargs={limt: 2.0}", home=new_home, check=False)
    assert wrong.returncode == 1
    assert "`truncated` takes no limt; did you mean `limit`?" in " ".join(wrong.stdout.split())
    planned = sightline("plan", *arguments[1:], home=new_home).stdout
    assert "to do; the rows are counted first" in planned

    with prefect_server(new_home, new_home / "server.txt") as (_, variables):
        sightline(*arguments, home=new_home, timeout=800, variables=variables | {"OMP_NUM_THREADS": "1"})
        run = the_run(new_home / "runs")
        check_results(run, source)
        # The run's folder is enough afterwards, whatever became of the files.
        shutil.rmtree(mine)
        again = sightline("run", str(run.root), home=new_home, timeout=600, variables=variables).stdout
    stages = [line for line in again.splitlines() if line.startswith("✓")]
    assert stages and all("finished before" in line for line in stages), again
    assert load_config(run.config).data.train.type == "custom"
    copies = json.loads((run.inputs / "inputs.json").read_text())["copies"]
    assert {Path(name).name for name in copies} >= {"sums_of_mine.py", "loss.py", "advantage.py", "filter.py"}


def check_results(run: RunDirectory, source: Path) -> None:
    """What was trained, and that the run's folder has a copy of the source."""
    lines = [line for line in read(run.metrics) if line["step"] > 0]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["actor/grad_norm"] > 0.0 and "actor/truncated_share" in line for line in lines)
    assert all(line["filter/kept_share"] == 1.0 for line in lines)
    assert all(len(line["workers"]["host"]) == 2 for line in read(run.timings))
    assert "advantage above_median, loss truncated" in (run.merged_model / "README.md").read_text()
    rows = PreparedDataset.open(run.data, "train")
    assert len(rows) == 16 and {prompt.data_source for prompt in rows} == {"rows"}
    (kept,) = run.inputs.glob("*/sums_of_mine.py")
    assert kept.read_bytes() == source.read_bytes()
