"""Opens the workers of a run. Only this module chooses their class."""

from typing import TYPE_CHECKING

import torch

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.progress import Progress
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import WorkerGroup

if TYPE_CHECKING:
    from rl_core.workers.ray_group import RayWorkerGroup


def open_workers(
    config: RunConfig,
    folders: WorkerFolders,
    *,
    total_optimizer_steps: int,
    total_critic_steps: int = 0,
    progress: Progress,
) -> WorkerGroup:
    """Workers with the initial model. The generator starts at the first `wake`.

    Args:
        config: The run.
        folders: The folders of model and data.
        total_optimizer_steps: Optimizer steps of the policy in the whole run, for its learning rate schedule.
        total_critic_steps: Optimizer steps of the critic in the whole run; 0 if there is no critic.
        progress: Shows what the run is waiting for.
    """
    return _class_of(config.cluster)(
        config,
        folders,
        total_optimizer_steps=total_optimizer_steps,
        total_critic_steps=total_critic_steps,
        progress=progress,
    )


def _class_of(cluster: ClusterConfig) -> "type[LocalWorker | RayWorkerGroup]":
    # A broken CUDA context cannot be repaired within a process, so on a GPU even a single worker has one of its own.
    if cluster.is_alone and not torch.cuda.is_available():
        return LocalWorker
    from rl_core.workers.ray_group import RayWorkerGroup  # Ray is loaded only where it is used
    from rl_core.workers.split_group import SplitWorkerGroup

    return SplitWorkerGroup if cluster.is_split else RayWorkerGroup
