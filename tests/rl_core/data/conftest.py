"""Tiny models that the data tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.config.model import FamilyName, TinyModel
from rl_core.models.tiny import build_tiny_model

CORPUS = [
    "How many objects are there? Reply with the number inside <answer></answer>.",
    "Find $x$ so that $m \\angle A B C = 40$, then compare both pictures.",
    "You are a careful assistant.",
] * 5


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Callable[[FamilyName], Path]:
    """`tiny_folder(family)`: a model folder, built once for the whole run of tests."""
    built: dict[str, Path] = {}

    def folder(family: FamilyName) -> Path:
        if family not in built:
            built[family] = tmp_path_factory.mktemp("models") / family
            source = TinyModel(type="tiny", family=family, hidden_size=64, num_layers=1, vision_depth=1)
            build_tiny_model(source, built[family], corpus=CORPUS, seed=1)
        return built[family]

    return folder
