"""Reports the end of a flow run to Prefect if it came while the server was away.

A process stays behind for it, unless a worker has started the flow's own process: that one waits itself. A worker that
cannot ask what became of a process that has ended would end too, or call the flow run Crashed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from flows.process.flow_runs import mark_ended
from rl_core.stop import Interrupted

logger = getLogger(__name__)

_LOOK_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 24 * 3600.0
"""How long a server is waited for. After it, `sightline doctor` reports the end."""


@contextmanager
def end_reported_later(flow_run_id: UUID, *, is_of_worker: bool) -> Iterator[None]:
    """If the server is away when the block ends, report to it how the block ended when it is back."""
    try:
        yield
    except Interrupted:
        _report_later(flow_run_id, "interrupted")
        raise
    except Exception:
        _report_later(flow_run_id, "failed", waits_here=is_of_worker)
        raise
    _report_later(flow_run_id, "completed", waits_here=is_of_worker)


def _report_later(flow_run_id: UUID, end: str, *, waits_here: bool = False) -> None:
    address = get_current_settings().api.url
    if address is None or _answers():  # an embedded server ends with this process
        return
    away = f"Prefect's server at {address} does not answer"
    if waits_here:
        logger.warning("%s: this process waits for it, to report how the run has ended", away)
        _wait()
        return
    # Without what Prefect sets in the process of a flow run, and without the folder of this process's files.
    own = {name: value for name, value in os.environ.items() if name != "TMPDIR" and not name.startswith("PREFECT__")}
    subprocess.Popen(
        [sys.executable, "-m", __name__, f"{flow_run_id}", end],
        env={**own, "PREFECT_API_URL": address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    logger.warning("%s: a process stays behind for up to a day, which reports how the run has ended", away)


def _answers() -> bool:
    try:
        with get_client(sync_client=True) as client:
            return client.hello().is_success
    except httpx.HTTPError:
        return False


def _wait() -> bool:
    """Wait for the server. Returns whether it is back."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        if _answers():
            return True
        time.sleep(_LOOK_SECONDS)
    return False


if __name__ == "__main__":
    if _wait():
        mark_ended(UUID(sys.argv[1]), sys.argv[2])
