"""Tiny models and small sources that the data tests share."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_core.config.model import Family, TinyModel
from rl_core.models.tiny import build_tiny_model
from tests.rl_core.data.samples import png_bytes

CORPUS = [
    "How many objects are there? Reply with the number inside <answer></answer>.",
    "Find $x$ so that $m \\angle A B C = 40$, then compare both pictures.",
    "You are a careful assistant.",
] * 5


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Family], Path]:
    """`tiny_folder(family)`: a model folder, built once for the whole run of tests."""
    built: dict[str, Path] = {}

    def folder(family: Family) -> Path:
        if family not in built:
            built[family] = tmp_path_factory.mktemp("models") / family
            source = TinyModel(type="tiny", family=family, hidden_size=64, num_layers=1, vision_depth=1)
            build_tiny_model(source, built[family], corpus=CORPUS, seed=1)
        return built[family]

    return folder


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """`write_jsonl(rows, name)`: a JSONL file in the test's folder; a row that is text is written as it is."""

    def write(rows: Sequence[dict[str, Any] | str], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def write_image(tmp_path: Path) -> Callable[..., Path]:
    """`write_image(name, colour)`: a PNG in the test's folder."""

    def write(name: str, colour: tuple[int, int, int] = (200, 30, 30)) -> Path:
        path = tmp_path / name
        path.write_bytes(png_bytes(colour=colour))
        return path

    return write
