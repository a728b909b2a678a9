"""A run's flow runs in Prefect: a killed one says Running for ever, until the next start marks it."""

import json
import logging
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from tasks.artifacts import UNREACHABLE

logger = logging.getLogger(__name__)

_FILE = "flow-run.json"


def remember(run: RunDirectory, flow_run_id: str) -> None:
    """Note which flow run writes this run now."""
    atomic_write_json(run.root / _FILE, {"flow_run": flow_run_id})


def mark_abandoned(run: RunDirectory, *, current: str) -> None:
    """Mark the flow run that wrote this run before as Crashed if it still says that it is running.

    Only for the holder of the run's lock: the lock proves that the other one is dead. Prefect refuses to retry a run
    that says Running, so without this nobody could.
    """
    try:
        earlier = str(json.loads((run.root / _FILE).read_text(encoding="utf-8"))["flow_run"])
    except FileNotFoundError:
        return
    if earlier != current:
        _mark(UUID(earlier))


def _mark(flow_run_id: UUID) -> None:
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is not None and not state.is_final():
                crashed: State[None] = Crashed(message="its process is gone; found by the run's next start")
                client.set_flow_run_state(flow_run_id, crashed, force=True)
                logger.warning("flow run %s was %s and its process is gone: marked Crashed", flow_run_id, state.name)
    except ObjectNotFound:
        logger.info("flow run %s is unknown to this Prefect database", flow_run_id)
    except UNREACHABLE as error:
        logger.warning("the earlier flow run %s could not be looked up (%s)", flow_run_id, error)
