"""What an engine is made of."""

from dataclasses import dataclass
from pathlib import Path

from rl_core.config.model import LoraConfig
from rl_core.config.training import RolloutConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What an engine is made of."""

    model: Path  # Hugging Face folder with config, tokenizer and processor; its weights are read once
    rollout: RolloutConfig
    dtype: str  # Number format of the engine's weights
    max_prompt_length: int  # Most tokens of a prompt, images expanded
    images_per_prompt: int  # Most images of a prompt
    videos_per_prompt: int = 0  # Most videos of a prompt
    seed: int  # Seed of the engine's global random generator, which no request uses
    lora: LoraConfig | None = None  # The adapters that it gets besides its weights; None if it gets merged weights
