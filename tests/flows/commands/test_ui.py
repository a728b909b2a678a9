"""The page servers: on loopback only, slim, and a failure says why."""

import socket
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from flows.commands.serving import PageServer, Serving
from flows.commands.ui import page_servers, serve_pages
from rl_core.tracking.mlflow_runs import MlflowPipeline
from tests.servers import free_port


def test_pages_are_served_on_loopback_by_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the tables of a new database are there before a server and a run make them at the same time."""
    monkeypatch.chdir(tmp_path)
    mlflow, prefect = page_servers(mlflow_uri="sqlite:///some.db", mlflow_port=5001, prefect_port=4201)
    with closing(sqlite3.connect("some.db")) as database:
        assert ("experiments",) in database.execute("select name from sqlite_master").fetchall()
    for server in (mlflow, prefect):
        assert server.command[server.command.index("--host") + 1] == "127.0.0.1"
        assert server.address == f"http://127.0.0.1:{server.port}"
    assert mlflow.command[mlflow.command.index("--workers") + 1] == "1"
    assert mlflow.environment["MLFLOW_BACKEND_STORE_URI"].startswith("sqlite:////")
    assert mlflow.environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert prefect.environment["PREFECT_UI_API_URL"] == "http://127.0.0.1:4201/api"


def test_a_password_is_in_no_servers_arguments() -> None:
    servers = page_servers(mlflow_uri="postgresql://weekly:geheim@db/mlflow", mlflow_port=5001, prefect_port=4201)
    assert not any("geheim" in word for server in servers for word in server.command)


def test_a_run_links_to_the_port_on_which_mlflow_is_served(
    new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store, port = new_database(), free_port()
    mlflow, _ = page_servers(mlflow_uri=store, mlflow_port=port, prefect_port=1)
    with Serving(Console(file=StringIO())) as serving:
        assert serving.start([mlflow])
        page, _, route = MlflowPipeline(store, experiment="quickstart", run_name="abc").parent.address.partition("#")
        assert page == f"http://127.0.0.1:{port}/" and "<html" in httpx.get(page).text
    assert route.endswith("?workflowType=machine_learning")


def test_a_server_that_does_not_start_says_why_and_takes_the_other_one_along() -> None:
    port = free_port()
    waiting = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    failing = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    text = StringIO()
    servers = [
        PageServer(name="First", port=port, command=waiting, health="/"),
        PageServer(name="Second", port=1, command=failing, health="/"),
    ]
    assert serve_pages(servers, Console(file=text, width=120)) == 1
    assert "First" in text.getvalue()
    assert "Second did not start on port 1" in text.getvalue() and "the port is taken" in text.getvalue()
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0
