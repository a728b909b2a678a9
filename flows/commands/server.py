"""`sightline server`: Prefect's server, workers that run deployments, and MLflow, on this machine only."""

from collections.abc import Sequence

from rich.console import Console

from flows.commands.ui import PageServer, Serving, page_servers, worker_server
from flows.process.device_groups import check_groups, environment_of
from flows.process.work_pool import DEVICES, OTHERS, limit_devices

POOL = "local"
"""Name of the work pool in prefect.yaml."""


def serve_with_workers(
    console: Console,
    *,
    mlflow_uri: str,
    mlflow_port: int,
    prefect_port: int,
    worker_port: int,
    groups: Sequence[str] = (),
) -> int:
    """Start the servers and then the workers, print what to do next, and wait for Ctrl-C. Returns the exit code.

    Raises:
        ValueError: a group is none, or two groups share a device.
    """
    check_groups(groups)
    pages = page_servers(mlflow_uri=mlflow_uri, mlflow_port=mlflow_port, prefect_port=prefect_port)
    with Serving(console) as serving:
        if not serving.start(pages):
            return 1
        # The first worker makes the pool.
        first, *others = _workers(groups, worker_port=worker_port, prefect_port=prefect_port)
        if not serving.start([first]):
            return 1
        api = f"http://127.0.0.1:{prefect_port}/api"
        limit_devices(api, POOL, groups=len(groups))
        if not serving.start(others):
            return 1
        console.print("\nIn another terminal:", highlight=False)
        for command in (
            f"export PREFECT_API_URL={api}",
            "prefect deploy --all",
            "prefect deployment run baseline/quickstart",
        ):
            console.print(f"  {command}", highlight=False, soft_wrap=True)
        return serving.wait()


def _workers(groups: Sequence[str], *, worker_port: int, prefect_port: int) -> list[PageServer]:
    """One worker for everything; with groups of devices, one for what needs none, and one for each group, which carries
    out one run at a time."""
    if not groups:
        return [worker_server(pool=POOL, port=worker_port, prefect_port=prefect_port)]
    plain = worker_server(pool=POOL, port=worker_port, prefect_port=prefect_port, options=["--work-queue", OTHERS])
    return [
        plain,
        *(
            worker_server(
                pool=POOL,
                port=worker_port + number,
                prefect_port=prefect_port,
                name=f"group {group}",
                options=["--work-queue", DEVICES, "--limit", "1"],
                environment=environment_of(group),
            )
            for number, group in enumerate(groups, start=1)
        ),
    ]
