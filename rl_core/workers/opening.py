"""Opens the workers of a run: the one place that knows which kind they are."""

import torch

from rl_core.config.run import RunConfig
from rl_core.progress import Progress
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.process_worker import ProcessWorker
from rl_core.workers.protocol import WorkerGroup


def open_workers(
    config: RunConfig,
    folders: WorkerFolders,
    *,
    total_optimizer_steps: int,
    total_critic_steps: int = 0,
    progress: Progress,
) -> WorkerGroup:
    """Workers with the initial model; their generator starts when it is first woken.

    Args:
        config: The run.
        folders: What is read.
        total_optimizer_steps: Optimizer steps of the policy in the whole run, for the schedule of its rate.
        total_critic_steps: Optimizer steps of the critic in the whole run; 0 without one.
        progress: Shows what is being waited for.
    """
    # A broken CUDA context cannot be mended: there the worker has a process of its own, which ends with it.
    kind = ProcessWorker if torch.cuda.is_available() else LocalWorker
    return kind(
        config,
        folders,
        total_optimizer_steps=total_optimizer_steps,
        total_critic_steps=total_critic_steps,
        progress=progress,
    )
