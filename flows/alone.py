"""A run in a process of its own: whatever ends it, memory and broken libraries included, ends nothing else."""

import os
import subprocess
import sys

from flows.children import ended_with_this_process
from flows.embedded_server import prefect_address
from flows.flow_runs import noted
from flows.request import RunRequest
from rl_core.config.loading import dump_config
from rl_core.engine.stop import StopRequest
from rl_core.files import atomic_write_text
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked

_SECONDS_BETWEEN_LOOKS = 0.5


def run_alone(request: RunRequest, stop: StopRequest) -> str | None:
    """Carry a run out, or go on with it, as `sightline run --resume` does at a terminal.

    A request to stop is passed on, and so is the death of this process: the run stops after its step with a checkpoint.

    Returns:
        Why it did not come to its end; None when it did.
    """
    run = request.run
    try:
        with RunLock(run.lock):
            atomic_write_text(run.config, dump_config(request.config))
    except RunLocked as locked:
        return f"{locked}"
    before = noted(run).get("flow_run")
    status = _call(run, stop)
    if status == 0:
        return None
    last = noted(run)
    if last and last["flow_run"] != before and last["cause"]:
        return str(last["cause"])
    return f"its process ended with exit status {status}; {run.log} may tell more"


def _call(run: RunDirectory, stop: StopRequest) -> int:
    command = [sys.executable, "-m", "flows.cli", "run", "--resume", str(run.root)]
    # A session of its own: a terminal's Ctrl-C comes to it through this process, and once.
    process = subprocess.Popen(command, env=_environment(), start_new_session=True)
    with ended_with_this_process(process.pid):
        told = False
        while True:
            try:
                return process.wait(_SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                if stop.signum is not None and not told:
                    process.send_signal(stop.signum)
                    told = True


def _environment() -> dict[str, str]:
    """Without what Prefect tells the process of a flow run, which this one is not."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    return own | {"PREFECT_API_URL": prefect_address()}
