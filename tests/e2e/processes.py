"""Runs and Prefect's server as processes of a test, and what they show from outside."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from rl_core.config.loading import load_config
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.stages import run_name
from tests.e2e.runs import REPOSITORY, SMALL, command, environment, run_arguments
from tests.servers import free_port, started, wait_for_answer

PREFECT = [sys.executable, "-m", "prefect"]


@contextmanager
def prefect_server(
    home: Path, log: Path, *, port: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A server of its own on this port, or a free one, and the environment that reaches it. A second one on the same
    home and port goes on with what the first one had."""
    port = port or free_port()
    variables = environment(home) | {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    }
    arguments = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with started(arguments, variables, log) as process:
        wait_for_answer(f"http://127.0.0.1:{port}/api/health")
        yield process, variables


def prefect(*arguments: str, variables: Mapping[str, str]) -> str:
    """Run `prefect ARGUMENTS` to its end; what it printed."""
    done = subprocess.run(
        [*PREFECT, *arguments], env=variables, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_of(home: Path, *overrides: str) -> tuple[list[str], RunDirectory]:
    """The command line of a run of the small config with these overrides, and the folder that it writes."""
    config = load_config(SMALL, overrides)
    return command(*run_arguments(home, SMALL, *overrides)), RunDirectory(home / "runs" / run_name(config))


def flow_run_states(home: Path, run: RunDirectory) -> list[str]:
    """Final states of a run's flow runs, the oldest first, from Prefect's database."""
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database:
        which = f"%Z {run.name.partition('-')[2]}"
        rows = database.execute("select state_name from flow_run where name like ? order by created", (which,))
        return [name for (name,) in rows]


def openings(run: RunDirectory) -> int:
    """How many processes have opened the run so far."""
    return sum(event["kind"] == "started" for event in read(run.events)) if run.events.is_file() else 0


def has_recorded(run: RunDirectory, step: int) -> bool:
    return run.metrics.is_file() and f'"step":{step}' in run.metrics.read_text()
