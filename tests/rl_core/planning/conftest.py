"""A small valid configuration that every planning test bends."""

from collections.abc import Callable

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig

SMALL = """
experiment: small
data:
  train: {type: counting, size: 96, scene_seed: 1}
  validation: {type: counting, size: 8, scene_seed: 2}
  max_prompt_length: 64
  rollout_batch_size: 16
model: {source: {type: tiny}, dtype: float32}
reward: {function: count}
rollout: {max_response_length: 16}
actor: {global_batch_size: 8}
trainer: {total_epochs: 2}
"""


@pytest.fixture
def configure(tmp_path) -> Callable[..., RunConfig]:
    """`configure("rollout.n=4", ...)`: the small configuration with overrides."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return lambda *overrides: load_config(path, overrides)
