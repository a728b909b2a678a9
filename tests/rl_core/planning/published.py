"""Configurations and sizes that the planning tests share."""

from collections.abc import Callable

from rl_core.config.run import RunConfig
from rl_core.planning.model_sizes import ModelSizes, model_sizes

Configure = Callable[..., RunConfig]
"""The fixture `configure`."""


def sizes_of(config: RunConfig) -> ModelSizes:
    sizes = model_sizes(config.model.source)
    assert sizes is not None
    return sizes


def published(configure: Configure, size: str, *overrides: str) -> tuple[RunConfig, ModelSizes]:
    """The small configuration with the geometry of a published model, Qwen2.5-VL."""
    source = f"model.source={{type: pretrained, path: Qwen/Qwen2.5-VL-{size}-Instruct}}"
    config = configure(source, "data.max_prompt_length=2048", "rollout.max_response_length=2048", *overrides)
    return config, sizes_of(config)
