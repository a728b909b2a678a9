"""Small models of the five families, written once a session."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rl_core.busy import threads_of_torch
from tests.rl_core.models.builders import write_small_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from a second thread and, on a busy machine, wait long for it. A test of large
    ones sets its own number."""
    with threads_of_torch(1):
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Callable[[str], Path]:
    """Family -> Hugging Face folder."""
    folders: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in folders:
            folders[family] = write_small_model(tmp_path_factory.mktemp(family), family)
        return folders[family]

    return folder
