"""The program that holds a local Ray cluster: `python -m rl_core.workers.ray_head FOLDER CPUS GPUS`.

A process of its own, because a signal to the run's process group must not end the cluster before the run has saved its
state; and because somebody must remove the cluster's folder when the run was killed. It prints the address as a line,
and ends the cluster when its standard input ends, the run's process is gone, or a service of Ray has died.
"""

import logging
import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from typing import Final

import psutil

from rl_core.environment import disable_telemetry
from rl_core.parent import end_of_parent

_OBJECT_STORE_BYTES: Final = 512 << 20
"""Shared memory for messages. Larger ones spill to the disk; a container's /dev/shm is often small."""

_LOOK_SECONDS: Final = 1.0
"""How often the services of Ray are looked at."""


def main() -> None:
    """Start the cluster, wait, and end it."""
    folder, cpus, gpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    parent = end_of_parent()
    # The run decides when its cluster ends, also where a service manager or Slurm sends SIGTERM to every process. Ray's
    # processes inherit that these signals are blocked; its own handlers in this one are never called.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    disable_telemetry()
    only_loopback()
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        context = ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            _temp_dir=folder,
        )
        sys.stdout.write(f"{context.address_info['address']}\n")
        sys.stdout.flush()
        node = ray._private.worker._global_node
        while not select.select([sys.stdin, parent], [], [], _LOOK_SECONDS)[0]:
            if node.dead_processes():
                break
    finally:
        _kill_descendants()
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # Ray would wait for its services


def _kill_descendants() -> None:
    """End Ray's services and workers, which ignore SIGTERM, with the process groups in which workers have put what they
    have started."""
    descendants = [child.pid for child in psutil.Process().children(recursive=True)]
    groups = set()
    for pid in descendants:
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(pid))
    for group in groups - {os.getpgid(0)}:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for pid in descendants:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def only_loopback() -> None:
    """Make Ray in this process take 127.0.0.1 as the machine's address, so that its services listen nowhere else. It
    has a switch for this, named after the systems where it is on by default, and replaces `_node_ip_address`."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # where Ray was imported before the variable was set


if __name__ == "__main__":
    main()
