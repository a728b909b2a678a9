"""A group of seeds from the command line, killed, stopped, and started again."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.environment import usable_cores
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import lock_owner
from tests.e2e.processes import openings, run_of
from tests.e2e.runs import REPOSITORY, SMALL, command, environment, fingerprint, run_arguments, sightline
from tests.results import differences
from tests.servers import started, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]


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
    printed = output.read_text()
    assert "2 runs, 2 at a time" in printed and "stopped by SIGTERM" in printed, printed
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
