"""`sightline server`: Prefect's server, a worker that runs deployments, and MLflow, on this machine only."""

from rich.console import Console

from flows.commands.ui import Serving, page_servers, worker_server
from flows.process.work_pool import limit_devices

POOL = "local"
"""Name of the work pool in prefect.yaml."""


def serve_with_worker(
    console: Console, *, mlflow_uri: str, mlflow_port: int, prefect_port: int, worker_port: int
) -> int:
    """Start the servers and then the worker, print what to do next, and wait for Ctrl-C. Returns the exit code."""
    pages = page_servers(mlflow_uri=mlflow_uri, mlflow_port=mlflow_port, prefect_port=prefect_port)
    with Serving(console) as serving:
        if not serving.start(pages):
            return 1
        if not serving.start([worker_server(pool=POOL, port=worker_port, prefect_port=prefect_port)]):
            return 1
        api = f"http://127.0.0.1:{prefect_port}/api"
        limit_devices(api, POOL)
        console.print("\nIn another terminal:", highlight=False)
        for command in (
            f"export PREFECT_API_URL={api}",
            "prefect deploy --all",
            "prefect deployment run baseline/quickstart",
        ):
            console.print(f"  {command}", highlight=False, soft_wrap=True)
        return serving.wait()
