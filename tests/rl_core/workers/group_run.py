"""A process that opens workers in a cluster: `python -m tests.rl_core.workers.group_run MODEL DATA CONFIG OVERRIDE...`.

It prints the process of its first worker, and of a local cluster the process that holds it and its folder. Then it does
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
        of_cluster = [] if local is None else [local._head.pid, local._folder]
        sys.stdout.write(f"{' '.join(map(str, [pids_of(group)[0], *of_cluster]))}\n")
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
