"""A group of seeds from the command line, killed twice and started again."""

import json
import os
import signal
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.request import resolve_run
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import has_recorded
from tests.e2e.runs import SMALL, command, environment, fingerprint, run_arguments, sightline
from tests.results import differences
from tests.servers import started, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_a_killed_group_goes_on_with_the_same_command(finished: RunDirectory, new_home: Path) -> None:
    """The first seed is that of the finished run, so that their results must be equal to the bit."""
    arguments = [*run_arguments(new_home), "--seeds", "7-8"]
    run, other = (resolve_run(SMALL, [f"seed={seed}"], runs_dir=new_home / "runs").run for seed in (7, 8))
    for killed in (run, other):
        with started(command(*arguments), environment(new_home), new_home / "output.txt") as process:
            wait_until(lambda: has_recorded(killed, 1), "a step is recorded", 600.0)  # noqa: B023 (called here)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
    done = sightline(*arguments, home=new_home, timeout=1200)
    assert differences(fingerprint(finished), fingerprint(run)) == []

    (folder,) = (new_home / "runs" / "seeds").iterdir()
    (group,) = json.loads((folder / "summary.json").read_text())["groups"]
    assert (group["seeds"], group["runs"]) == ([7, 8], [run.name, other.name])
    assert group["over_seeds"] in done.stdout and str(folder / "summary.html") in done.stdout
    assert (other.data / "train.parquet").samefile(run.data / "train.parquet"), "the rows were prepared again"

    client = MlflowClient(tracking_uri=f"sqlite:///{new_home}/mlflow.db")
    experiment = client.get_experiment_by_name("small").experiment_id
    runs = {found.info.run_name: found for found in client.search_runs([experiment])}
    children = [runs[name].data.tags["mlflow.parentRunId"] for name in group["runs"]]
    assert set(children) == {runs[folder.name].info.run_id}

    again = sightline("run", "--resume", folder.name, "--runs-dir", str(new_home / "runs"), home=new_home, timeout=600)
    assert again.stdout.count("was finished before") == 2 and group["over_seeds"] in again.stdout
