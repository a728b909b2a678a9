"""Starts the engine of a generator."""

from pathlib import Path

from rl_core.config.model import LoraConfig
from rl_core.config.training import RolloutConfig
from rl_core.distributed.generator_ranks import WHOLE, GeneratorRanks
from rl_core.models.loading import banned_token_ids, stop_token_ids
from rl_core.models.pixels import PixelCache
from rl_core.rollout.protocol import RolloutEngine


def start_engine(
    model_folder: Path,
    *,
    config: RolloutConfig,
    dtype: str,
    max_prompt_length: int,
    images_per_prompt: int,
    videos_per_prompt: int,
    pixels: PixelCache,
    seed: int,
    ranks: GeneratorRanks = WHOLE,
    lora: LoraConfig | None = None,
) -> RolloutEngine:
    """An engine that waits for its first weights. All ranks of a generator start it together.

    Args:
        model_folder: Hugging Face folder with the architecture and the processor.
        config: The section `rollout` of the config.
        dtype: Number format of the weights.
        max_prompt_length: Most tokens of a prompt.
        images_per_prompt: Most images of a prompt.
        videos_per_prompt: Most videos of a prompt.
        pixels: The pixels of the prompts' images.
        seed: Seed of the engine; each request has a seed of its own.
        ranks: The ranks that hold the engine together.
        lora: The adapters that it gets beside its weights; None if it gets merged weights.
    """
    # Imported here because importing vLLM takes seconds, and a cold start or a merge does not need it.
    from rl_core.rollout.vllm_engine import VllmEngine

    return VllmEngine(
        model_folder,
        config=config,
        dtype=dtype,
        max_prompt_length=max_prompt_length,
        images_per_prompt=images_per_prompt,
        videos_per_prompt=videos_per_prompt,
        banned_token_ids=banned_token_ids(model_folder),
        stop_token_ids=stop_token_ids(model_folder),
        pixels=pixels,
        seed=seed,
        ranks=ranks,
        lora=lora,
    )
