"""The work queue of deployments that need devices."""

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.process.embedded_server import named_when_away

DEVICES = "devices"
"""Name of the queue in prefect.yaml. It allows one run for each group of devices, because two runs on the same devices
would run out of memory."""

OTHERS = "default"
"""Name of the queue of deployments that need no device."""

_BY_GROUPS = "one run for each group of devices of `sightline server --group`"
"""The description of a queue whose limit was set here and not by a person."""


def limit_devices(api_url: str, pool: str, *, groups: int = 0) -> None:
    """Create the queue in an existing work pool, or limit the queue that a deployment created.

    Args:
        api_url: Address of Prefect's server.
        pool: Name of the work pool.
        groups: Number of groups of devices, each of which takes one run; 0 if all devices are one group. Then a limit
            that a person has set stays.

    Raises:
        PrefectAway: the server does not answer.
    """
    limit, said = max(1, groups), _BY_GROUPS if groups else ""
    with (
        temporary_settings({PREFECT_API_URL: api_url}),
        named_when_away(api_url),
        get_client(sync_client=True) as client,
    ):
        try:
            client.create_work_queue(name=DEVICES, concurrency_limit=limit, description=said, work_pool_name=pool)
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(DEVICES, work_pool_name=pool)
            if groups or queue.concurrency_limit is None or queue.description == _BY_GROUPS:
                client.update_work_queue(queue.id, concurrency_limit=limit, description=said)
