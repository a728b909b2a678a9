"""The program that holds a local Ray cluster: `python -m rl_core.workers.ray_head FOLDER CPUS GPUS`.

A process of its own, because a signal to the run's process group must not end the cluster before the run has saved its
state; and because somebody must remove the cluster's folder when the run was killed. It prints the address as a line,
and ends the cluster when its standard input ends or the run's process is gone.
"""

import logging
import os
import select
import shutil
import signal
import sys
from typing import Final

from rl_core.environment import disable_telemetry
from rl_core.parent import end_of_parent

_OBJECT_STORE_BYTES: Final = 512 << 20
"""Shared memory for messages. Larger ones spill to the disk; a container's /dev/shm is often small."""


def main() -> None:
    """Start the cluster, wait, and end it."""
    folder, cpus, gpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    parent = end_of_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the run decides when its cluster ends
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
        select.select([sys.stdin, parent], [], [])
        ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def only_loopback() -> None:
    """Make Ray in this process take 127.0.0.1 as the machine's address, so that its services listen nowhere else. It
    has a switch for this, named after the systems where it is on by default, and replaces `_node_ip_address`."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # where Ray was imported before the variable was set


if __name__ == "__main__":
    main()
