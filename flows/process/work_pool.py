"""The work queue of deployments that need the worker's devices."""

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.process.embedded_server import named_when_away

DEVICES = "devices"
"""Name of the queue in prefect.yaml. It allows one run at a time, because two runs on the same devices would run out of
memory."""


def limit_devices(api_url: str, pool: str) -> None:
    """Create the queue in an existing work pool with a limit of one run, or limit the queue that a deployment created;
    a limit that a person has set stays. Raises PrefectAway where the server does not answer."""
    with (
        temporary_settings({PREFECT_API_URL: api_url}),
        named_when_away(api_url),
        get_client(sync_client=True) as client,
    ):
        try:
            client.create_work_queue(name=DEVICES, concurrency_limit=1, work_pool_name=pool)
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(DEVICES, work_pool_name=pool)
            if queue.concurrency_limit is None:
                client.update_work_queue(queue.id, concurrency_limit=1)
