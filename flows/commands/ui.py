"""`sightline ui`: the pages of MLflow and Prefect, reachable from this machine only."""

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Console

from flows.commands.serving import HOST, PageServer, Serving
from flows.process.embedded_server import starting_alone

POOL = "local"
"""Name of the work pool in prefect.yaml."""


def page_servers(*, mlflow_uri: str, mlflow_port: int, prefect_port: int) -> list[PageServer]:
    """The servers of MLflow and Prefect. By default MLflow starts four workers and a job runner (15 processes, 2 GB);
    here it is one worker, which is enough for one person. Makes the tables of MLflow's database, which a run may be
    about to make, too; raises OSError where that fails."""
    from rl_core.tracking.mlflow_access import absolute_uri, make_tables
    from rl_core.tracking.mlflow_pages import note_pages

    store = absolute_uri(mlflow_uri)
    make_tables(store)
    python = [sys.executable, "-m"]
    mlflow = ["mlflow", "server", "--workers", "1"]
    prefect = ["prefect", "server", "start", "--host", HOST, "--port", f"{prefect_port}"]
    return [
        PageServer(
            name="MLflow",
            port=mlflow_port,
            command=[*python, *mlflow, "--host", HOST, "--port", f"{mlflow_port}"],
            health="/health",
            # The address may contain a password, and every user of the machine can read a process's arguments.
            environment={
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_BACKEND_STORE_URI": store,
            },
            when_up=lambda: note_pages(store, f"http://{HOST}:{mlflow_port}"),
        ),
        PageServer(
            name="Prefect",
            port=prefect_port,
            command=[*python, *prefect],
            health="/api/health",
            # Pages on another port than the default one must be told where the API is.
            environment={"PREFECT_UI_API_URL": f"http://{HOST}:{prefect_port}/api"},
        ),
    ]


def worker_server(
    *,
    port: int,
    prefect_port: int,
    name: str = "worker",
    options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> PageServer:
    """A worker that runs the deployments of the pool, which it makes if it is not there; its address is its health
    check. The runs that it carries out have the variables of `environment` too."""
    start = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--with-healthcheck"]
    return PageServer(
        name=name,
        port=port,
        command=[sys.executable, "-m", *start, "--name", name, *options],
        health="/health",
        environment={
            **environment,
            "PREFECT_API_URL": f"http://{HOST}:{prefect_port}/api",
            "PREFECT_WORKER_WEBSERVER_HOST": HOST,
            "PREFECT_WORKER_WEBSERVER_PORT": f"{port}",
        },
        stop_seconds=60.0,
        is_whole=False,
    )


def serve_pages(servers: Sequence[PageServer], console: Console) -> int:
    """Start the servers, print their addresses, keep them running until Ctrl-C. Returns 1 if one does not start, or all
    have been given up, else 0. Raises PrefectAway as `starting_alone`."""
    with Serving(console) as serving:
        with starting_alone():
            are_there = serving.start(servers)
        return serving.wait() if are_there else 1
