"""A small valid configuration in a file."""

from pathlib import Path

import pytest

SMALL = """
experiment: small
data:
  train: {type: counting, size: 8, scene_seed: 1}
  validation: {type: counting, size: 4, scene_seed: 2}
model: {source: {type: tiny}}
reward: {function: count}
"""


@pytest.fixture
def small(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
