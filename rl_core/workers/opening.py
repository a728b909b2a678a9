"""Opens the workers of a run. Only this module chooses their class."""

import torch

from rl_core.progress import Progress
from rl_core.workers.folders import Opening
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import WorkerGroup


def open_workers(opening: Opening, *, progress: Progress) -> WorkerGroup:
    """Workers with the initial model. The generator starts at the first `wake`."""
    cluster = opening.config.cluster
    # A broken CUDA context cannot be repaired within a process, so on a GPU even a single worker has one of its own.
    if cluster.is_alone and not torch.cuda.is_available():
        return LocalWorker(opening, progress=progress)
    from rl_core.workers.ray_group import RayWorkerGroup  # Ray is loaded only where it is used
    from rl_core.workers.split_group import SplitWorkerGroup

    return (SplitWorkerGroup if cluster.is_split else RayWorkerGroup)(opening, progress=progress)
