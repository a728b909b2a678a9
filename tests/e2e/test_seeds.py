"""A group of seeds from the command line, killed twice and started again."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.request import resolve_run
from rl_core.config.loading import load_config
from rl_core.environment import usable_cores
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import lock_owner
from tests.e2e.processes import has_recorded, openings, run_of
from tests.e2e.runs import REPOSITORY, SMALL, command, environment, fingerprint, run_arguments, sightline
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


@pytest.mark.skipif(usable_cores() < 2, reason="two runs share two cores")
def test_seeds_side_by_side_end_as_each_would_alone(new_home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A thread each. The group is killed, stopped, and started again, the first two times while it carries both out."""
    one_thread = "cluster.threads=1"
    home = tmp_path_factory.mktemp("alone")
    alone, together = ([run_of(place, f"seed={seed}", one_thread) for seed in (7, 8)] for place in (home, new_home))
    for words, _ in alone:
        subprocess.run(words, env=environment(home), cwd=REPOSITORY, check=True, timeout=600, capture_output=True)
    runs = [run for _, run in together]
    arguments = [*run_arguments(new_home, SMALL, one_thread), "--seeds", "7-8"]
    output = new_home / "output.txt"
    # When it has been killed, the first one may go on to its end before it looks for the request.
    for opened, looked_at, signum, code in ((1, runs, signal.SIGKILL, -9), (2, runs[1:], signal.SIGTERM, 143)):
        with started(command(*arguments), environment(new_home), output) as process:
            wait_until(lambda: all(_is_open(run, opened) for run in looked_at), "they are carried out", 600.0)  # noqa: B023 (called here)
            os.kill(process.pid, signum)
            assert process.wait(timeout=300) == code
    said = output.read_text()
    assert "2 runs, 2 at a time" in said and "stopped by SIGTERM" in said, said
    done = sightline(*arguments, home=new_home, timeout=1200)
    for (_, expected), run in zip(alone, runs, strict=True):
        assert differences(fingerprint(expected), fingerprint(run)) == []
        headline = f"seed {load_config(run.config).seed}: done held-out accuracy "
        (ended,) = [line for line in done.stdout.splitlines() if line.startswith(headline)]
        assert str(run.report) in ended
    assert (runs[1].data / "train.parquet").samefile(runs[0].data / "train.parquet"), "the rows were prepared again"


def _is_open(run: RunDirectory, opened: int) -> bool:
    """Whether the process that has opened the run as often as this is carrying it out."""
    return openings(run) == opened and lock_owner(run.lock) is not None
