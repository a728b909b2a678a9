"""A forecast of the disk space that a run takes, and whether that much is free."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.config.run import RunConfig
from rl_core.planning.memory_rows import GIB
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES, rl_training_state, whole_training_state
from rl_core.problem import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskRow:
    """One kind of file that a run writes: the bytes of one, and how many there are at the most."""

    name: str
    num_bytes: int
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskForecast:
    """The models and checkpoints of a run; prepared data, rollouts and logs come on top."""

    rows: Sequence[DiskRow]

    @property
    def total_bytes(self) -> int:
        """Most bytes that are there at one time."""
        return sum(row.num_bytes * row.count for row in self.rows)


def disk_forecast(config: RunConfig, sizes: ModelSizes) -> DiskForecast:
    """Disk space that the models and checkpoints of a run take at the most.

    A new checkpoint is complete before the oldest is removed, so for a moment there is one more than the run keeps.
    """
    weights = sizes.parameters * BYTES[config.model.dtype]
    models = 2 if config.cold_start is None else 3  # as configured, merged, and after the cold start
    return DiskForecast(
        rows=(
            DiskRow(name="model", num_bytes=weights, count=models),
            DiskRow(name="checkpoint", num_bytes=checkpoint_bytes(config, sizes), count=checkpoints_kept(config) + 1),
        )
    )


def checkpoint_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of one checkpoint: the trained weights in float32, the frozen weights (except with LoRA, whose checkpoints
    hold adapters only), the optimizer's moments unless `trainer.save_model_only` is set, and the same of a critic."""
    model = config.model
    trained = rl_training_state(model, config.actor.optim, sizes)
    frozen = 0 if model.lora is not None else (sizes.parameters - trained.parameters) * BYTES[model.dtype]
    weights = trained.numbers + frozen
    moments = trained.moments
    if config.critic is not None:
        critic = whole_training_state(model, config.critic.optim, sizes)
        weights += critic.numbers
        moments += critic.moments
    return weights if config.trainer.save_model_only else weights + moments


def checkpoints_kept(config: RunConfig) -> int:
    """Number of checkpoints that the run keeps: `trainer.save_limit`, and the best one where the run validates."""
    return config.trainer.save_limit + (1 if config.trainer.val_freq > 0 else 0)


def check_free_disk(path: Path, needed_bytes: int) -> Problem | None:
    """A problem where fewer than `needed_bytes` are free on the disk of `path`, which need not exist yet."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free >= needed_bytes:
        return None
    return Problem(
        where=f"disk of {path}",
        what=f"{needed_bytes / GIB:.2f} GiB are needed and {free / GIB:.2f} GiB are free",
        fix="free some space, put the run elsewhere, lower trainer.save_limit, or set trainer.save_model_only",
    )
