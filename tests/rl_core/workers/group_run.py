"""A process that opens workers in a local cluster: `python -m tests.rl_core.workers.group_run MODEL DATA CONFIG ...`.

It prints the process of its first worker, the process that holds the cluster, and its folder. Then it does
what the lines say that it reads: `wake` starts the generators, a number of seconds is how long it waits until it ends.
"""

import signal
import sys
import time
from pathlib import Path

from flows.process.temporary_folder import own_temporary_folder
from rl_core.config.loading import load_config
from rl_core.progress import SilentProgress
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.ray_group import RayWorkerGroup
from tests.processes import pids_of


def main() -> None:
    # A test run in the background ignores Ctrl-C, and so would this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own_temporary_folder()  # as each process of a flow
    model, data, config = map(Path, sys.argv[1:4])
    folders = WorkerFolders(model=model, base=model, data=data, images_per_prompt=1)
    loaded = load_config(config, sys.argv[4:])
    group = RayWorkerGroup(Opening(config=loaded, folders=folders, total_optimizer_steps=1), progress=SilentProgress())
    try:
        local = group._cluster.local
        assert local is not None
        sys.stdout.write(f"{pids_of(group)[0]} {local._head.pid} {local._folder}\n")
        sys.stdout.flush()
        while (line := sys.stdin.readline().strip()) == "wake":
            group.wake()
            sys.stdout.write("awake\n")
            sys.stdout.flush()
        time.sleep(float(line))
    finally:
        group.close()


if __name__ == "__main__":
    main()
