"""Starts the engine of a run's generator."""

from rl_core.config.run import RunConfig
from rl_core.distributed.generator_ranks import WHOLE, GeneratorRanks
from rl_core.models.pixels import PixelCache
from rl_core.rollout.protocol import RolloutEngine
from rl_core.rollout.starting import start_engine
from rl_core.workers.folders import WorkerFolders


def start_engine_of_run(
    config: RunConfig, folders: WorkerFolders, pixels: PixelCache, *, ranks: GeneratorRanks = WHOLE
) -> RolloutEngine:
    """An engine for the prompts of a run, that waits for its first weights. See `start_engine`."""
    return start_engine(
        folders.model,
        config=config.rollout,
        dtype=config.model.dtype,
        max_prompt_length=config.data.max_prompt_length,
        images_per_prompt=folders.images_per_prompt,
        videos_per_prompt=folders.videos_per_prompt,
        pixels=pixels,
        seed=config.seed,
        ranks=ranks,
        lora=config.model.generator_lora,
    )
