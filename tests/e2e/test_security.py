"""A whole run: what listens while it works, and what it leaves of the secrets in its environment."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.planted_secrets import leaks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_nothing_listens_but_on_loopback(addresses: set[str]) -> None:
    assert addresses, "the embedded server was never seen"
    assert addresses <= {"127.0.0.1", "::1"}


def test_no_secret_is_written_down(home: Path, finished: RunDirectory) -> None:
    written = {path.name for path in home.rglob("*")}
    assert {"run.log", "events.jsonl", "report.html", "config.yaml", "output.txt", "prefect.db", "mlflow.db"} <= written
    assert leaks(home) == []
