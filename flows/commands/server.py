"""`sightline server`: Prefect's server, workers that run deployments, and MLflow, on this machine only. A group of
devices, GPUs of this machine or a Ray cluster, belongs to one training at a time."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from flows.commands.serving import PageServer, Serving
from flows.commands.ui import POOL, page_servers, worker_server
from flows.process.embedded_server import named_when_away, starting_alone
from flows.process.flow_runs import WaitingRuns

DEVICES = "devices"
"""Name of the queue in prefect.yaml. It allows one run for each group of devices, because two runs on the same devices
would run out of memory."""

OTHERS = "default"
"""Name of the queue of deployments that need no device."""

_BY_GROUPS = "one run for each group of devices of `sightline server --group`"
"""The description of a queue whose limit was set here and not by a person."""

_GPUS = re.compile(r"\d+(,\d+)*")
_CLUSTER = re.compile(r"[^\s:/,]+:\d+")


def limit_devices(api_url: str, pool: str, *, groups: int = 0) -> None:
    """Create the queue in an existing work pool, or limit the queue that a deployment created, to one run for each
    group of devices. Without groups all devices are one group, and a limit that a person has set stays. Raises
    PrefectAway where the server does not answer."""
    limit, description = max(1, groups), _BY_GROUPS if groups else ""
    with (
        temporary_settings({PREFECT_API_URL: api_url}),
        named_when_away(api_url),
        get_client(sync_client=True) as client,
    ):
        try:
            client.create_work_queue(
                name=DEVICES, concurrency_limit=limit, description=description, work_pool_name=pool
            )
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(DEVICES, work_pool_name=pool)
            if groups or queue.concurrency_limit is None or queue.description == _BY_GROUPS:
                client.update_work_queue(queue.id, concurrency_limit=limit, description=description)


def check_groups(groups: Sequence[str]) -> None:
    """Raises ValueError if a group is neither GPUs nor the address of a cluster, or two groups share a device."""
    values = [value for group in groups for value in environment_of(group).values()]
    times = Counter(device if ":" in device else f"GPU {device}" for value in values for device in value.split(","))
    if shared := [device for device, number in times.items() if number > 1]:
        raise ValueError(
            f"{', '.join(shared)} would be given to two trainings at once: each device belongs to one group"
        )


def environment_of(group: str) -> Mapping[str, str]:
    """The variables with which a process uses this group alone: a config with `cluster.address: auto` joins the cluster
    that RAY_ADDRESS names. Raises ValueError if the group is neither GPUs nor the address of a cluster."""
    if _GPUS.fullmatch(group):
        return {"CUDA_VISIBLE_DEVICES": group}
    if _CLUSTER.fullmatch(group):
        return {"RAY_ADDRESS": group}
    raise ValueError(
        f"{group!r} is no group of devices: name GPUs by their numbers, such as 0,1, or a Ray cluster by its address, "
        "HOST:PORT"
    )


def serve_with_workers(
    console: Console,
    *,
    mlflow_uri: str,
    mlflow_port: int,
    prefect_port: int,
    worker_port: int,
    groups: Sequence[str] = (),
) -> int:
    """Start the servers and then the workers, print what to do next, and keep them running until Ctrl-C. Returns the
    exit code. Raises ValueError where a group is none, or two groups share a device; and PrefectAway as
    `starting_alone`."""
    check_groups(groups)
    pages = page_servers(mlflow_uri=mlflow_uri, mlflow_port=mlflow_port, prefect_port=prefect_port)
    with Serving(console) as serving:
        with starting_alone():
            are_there = serving.start(pages)
        if not are_there:
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
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            return serving.wait(also=WaitingRuns(client).name)


def _workers(groups: Sequence[str], *, worker_port: int, prefect_port: int) -> list[PageServer]:
    if not groups:
        return [worker_server(port=worker_port, prefect_port=prefect_port)]
    plain = worker_server(port=worker_port, prefect_port=prefect_port, options=["--work-queue", OTHERS])
    return [
        plain,
        *(
            worker_server(
                port=worker_port + number,
                prefect_port=prefect_port,
                name=f"group {group}",
                options=["--work-queue", DEVICES, "--limit", "1"],
                environment=environment_of(group),
            )
            for number, group in enumerate(groups, start=1)
        ),
    ]
