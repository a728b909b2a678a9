"""What workers are opened with: the folders that they read, and the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.run_directory import RunDirectory

SLOW_DISK: Final = 50_000_000
"""Bytes a second of the slowest disk, or network file system, for which a start is waited."""


def base_model(config: RunConfig, run: RunDirectory) -> Path:
    """Hugging Face folder of the model that RL starts from: the result of the cold start, if there is one."""
    return run.initial_model if config.cold_start is None else run.base_model


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFolders:
    """The folders of the model and of the prepared data. `base` is the model that RL starts from: another one than
    `model` after a cold start."""

    model: Path
    base: Path
    data: Path
    images_per_prompt: int
    videos_per_prompt: int = 0

    @property
    def reading_seconds(self) -> int:
        """How long a slow disk reads the model's weights: 22 minutes for 65 GB."""
        return sum(file.stat().st_size for file in self.model.glob("*.safetensors")) // SLOW_DISK

    def engine_spec(self, config: RunConfig) -> EngineSpec:
        """What the engine of the run's generator is made of."""
        return EngineSpec(
            model=self.model,
            rollout=config.rollout,
            dtype=config.model.dtype,
            # The last turn of a conversation is asked for with all that came before it.
            max_prompt_length=config.longest_prompt + config.longest_response - config.rollout.max_response_length,
            images_per_prompt=self.images_per_prompt + (config.tools.max_images if config.tools else 0),
            videos_per_prompt=self.videos_per_prompt,
            seed=config.seed,
            lora=config.model.generator_lora,
        )

    @classmethod
    def of_run(cls, config: RunConfig, run: RunDirectory, datasets: Mapping[str, PreparedDataset]) -> "WorkerFolders":
        """The folders of a run whose data is prepared."""
        return cls(
            model=run.initial_model,
            base=base_model(config, run),
            data=run.data,
            images_per_prompt=max(dataset.images_per_prompt for dataset in datasets.values()),
            videos_per_prompt=max(dataset.videos_per_prompt for dataset in datasets.values()),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What workers are opened with.

    Attributes:
        total_optimizer_steps: Optimizer steps of the policy in the whole run, for its learning rate schedule.
        total_critic_steps: Optimizer steps of the critic in the whole run; 0 if there is no critic.
    """

    config: RunConfig
    folders: WorkerFolders
    total_optimizer_steps: int
    total_critic_steps: int = 0
