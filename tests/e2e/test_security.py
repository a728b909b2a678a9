"""A whole run: what listens while it works, and what it leaves of the secrets in its environment."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.processes import run_of, started, wait_until
from tests.e2e.runs import environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SECRETS = {
    "HF_TOKEN": "hf_of_this_test_alone",
    "WANDB_API_KEY": "wandb-of-this-test-alone",
    "MLFLOW_TRACKING_URI": "http://weekly:password-of-this-test@127.0.0.1:9",
}
VALUES = ("hf_of_this_test_alone", "wandb-of-this-test-alone", "password-of-this-test")


def listening(process: psutil.Process) -> Iterator[tuple[str, str]]:
    """(address, command) of every socket that a process or its children wait at for strangers."""
    for one in [process, *process.children(recursive=True)]:
        try:
            connections = one.net_connections(kind="inet")
            command = " ".join(one.cmdline())[:100]
        except psutil.NoSuchProcess:
            continue
        yield from ((c.laddr.ip, command) for c in connections if c.status == psutil.CONN_LISTEN)


def text_of(path: Path) -> str:
    """All that a file says: Parquet and databases hold their texts compressed or in pages."""
    if path.suffix == ".parquet":
        return str(pq.read_table(path).to_pylist())
    if path.suffix == ".db":
        with closing(sqlite3.connect(path)) as database:
            return "\n".join(database.iterdump())
    return path.read_bytes().decode("latin-1")


@pytest.fixture(scope="module")
def watched(home: Path, finished: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """The evaluations, merge and report of the finished run made again with secrets in the environment and MLflow away:
    the folder with all that it left, and where it listened."""
    place = tmp_path_factory.mktemp("watched")
    arguments, run = run_of(home, "evaluation.temperature=0.4")
    found: set[tuple[str, str]] = set()

    with started(arguments, environment(place) | SECRETS, place / "output.txt") as process:

        def ended() -> bool:
            found.update(listening(psutil.Process(process.pid)) if process.poll() is None else ())
            return process.poll() is not None

        wait_until(ended, "the run ends", seconds=600)
        assert process.returncode == 0, (place / "output.txt").read_text()
    shutil.copytree(run.root, place / "run")
    assert found, "the embedded server was never seen"
    return place, {address for address, _ in found}


def test_nothing_listens_but_on_loopback(watched: tuple[Path, set[str]]) -> None:
    assert watched[1] <= {"127.0.0.1", "::1"}


def test_no_secret_is_written_down(watched: tuple[Path, set[str]]) -> None:
    # A database is read as a whole; the journal beside it goes when its server does.
    files = [p for p in watched[0].rglob("*") if p.is_file() and not p.name.endswith((".db-wal", ".db-shm"))]
    assert {"run.log", "events.jsonl", "report.html", "config.yaml", "output.txt", "prefect.db"} <= {
        path.name for path in files
    }
    assert "weekly:***@127.0.0.1:9" in (watched[0] / "run" / "run.log").read_text(), "the outage was not reported"
    leaks = [(path.relative_to(watched[0]), value) for path in files for value in VALUES if value in text_of(path)]
    assert leaks == []
