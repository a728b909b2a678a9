"""The flow of a group of seeds, as Prefect sees it. Finished runs stand for trained ones: none is repeated."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prefect import State
from rich.console import Console
from typer.testing import CliRunner

from flows.baseline_seeds import SeedsFailed, baseline_seeds
from flows.cli import app
from flows.commands.run import print_group
from flows.seed_group import SeedGroup
from rl_core.run_lock import RunLock
from tests.flows.test_reproduce import BASELINE, expect_task_states, finished, pages_of

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

OFF = ["tracking.mlflow_uri=null"]


def run_seeds(runs_dir: Path, seeds: str, **parameters: object) -> State:
    return baseline_seeds(
        **{"config": BASELINE, "overrides": OFF, "seeds": seeds, "runs_dir": str(runs_dir)} | parameters,
        return_state=True,
    )


def test_finished_seeds_are_recognised_and_have_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, right in ((1, 36), (2, 20), (3, 38)):
        finished(tmp_path, right, f"seed={seed}")
    state = run_seeds(tmp_path, "1-3")
    assert state.is_completed(), state
    expect_task_states(state, {f"seed {seed}": "Cached" for seed in (1, 2, 3)})
    (group,) = state.result()["groups"]
    assert (group["seeds"], group["accuracy_by_seed"]) == ([1, 2, 3], [0.9, 0.5, 0.95])
    assert [behind["seed"] for behind in group["stragglers"]] == [2]
    (folder,) = (tmp_path / "seeds").iterdir()
    assert (folder / "summary.html").is_file() and json.loads((folder / "summary.json").read_text())
    page = pages_of(state.state_details.flow_run_id)["seeds"]
    assert "seed 2 stayed behind" in page and str(folder) in page

    again = run_seeds(tmp_path, "9", resume=folder.name)
    assert again.is_completed() and again.result()["groups"] == [group]

    assert print_group(SeedGroup.saved(folder.name, str(tmp_path)), Console(width=200)) == 0
    printed = capsys.readouterr().out
    assert "mean 78.3 %, between seeds 50.0 to 95.0 %, 95 % over seeds 17.1 to 100.0 %" in printed
    assert "seed 2 stayed behind: " in printed and str(folder / "summary.html") in printed

    compared = CliRunner().invoke(
        app, ["compare", folder.name, "--runs-dir", str(tmp_path), "--out", str(tmp_path / "page.html")]
    )
    assert compared.exit_code == 0, compared.output
    assert "1, 2, 3" in compared.output


def test_a_seed_that_fails_keeps_no_other_from_its_result(tmp_path: Path) -> None:
    finished(tmp_path, 36, "seed=1")
    broken = next(plan for plan in _group(tmp_path, "2").planned()).resolved.run
    broken.root.mkdir()
    broken.config.mkdir()  # in the config's place
    state = run_seeds(tmp_path, "1-2")
    assert state.is_failed() and isinstance(state.result(raise_on_failure=False), SeedsFailed)
    assert state.message.startswith("seed 2 did not finish: "), state.message
    (folder,) = (tmp_path / "seeds").iterdir()
    (group,) = json.loads((folder / "summary.json").read_text())["groups"]
    assert group["over_seeds"] == "mean 90.0 %, one seed"
    assert (group["stragglers"][0]["seed"], group["stragglers"][0]["accuracy"]) == (2, None)
    assert print_group(SeedGroup.saved(folder.name, str(tmp_path)), Console(quiet=True)) == 1

    none = run_seeds(tmp_path, "2")
    assert none.is_failed() and "seed 2 did not finish" in none.message and "--resume" in none.message


def test_a_group_waits_for_the_process_that_still_writes_its_run(tmp_path: Path) -> None:
    """As the process of a run does after its group was killed, until its next checkpoint."""
    lock = RunLock(finished(tmp_path, 30, "seed=1").lock)
    lock.__enter__()

    class Releasing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting for its end" in record.getMessage():
                lock.__exit__(None, None, None)

    handler = Releasing()
    logging.getLogger("flows").addHandler(handler)
    try:
        state = run_seeds(tmp_path, "1")
    finally:
        logging.getLogger("flows").removeHandler(handler)
    assert state.is_completed()
    expect_task_states(state, {"seed 1": "Cached"})
    assert state.result()["groups"][0]["over_seeds"] == "mean 75.0 %, one seed"


def _group(runs_dir: Path, seeds: str) -> SeedGroup:
    asked = {"config": BASELINE, "overrides": OFF, "seeds": seeds, "resume": "", "fresh": False}
    return SeedGroup.of_parameters({**asked, "runs_dir": str(runs_dir)}, datetime.now(UTC))
