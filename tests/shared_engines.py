"""Engines that the tests of a folder share. vLLM keeps what belongs to an engine in globals of the process, so that one
which ends takes the groups of processes from any other. They end before the tests of another folder, which may start
their own."""

from collections.abc import Callable
from pathlib import Path

_ends: list[Callable[[], object]] = []
_folders: list[Path] = []


def ended_with_the_folder(end: Callable[[], object]) -> None:
    """Call `end` before each test of another folder than that of the test before it. An engine that it ends has to
    start again when it is next needed."""
    _ends.append(end)


def enter(folder: Path) -> None:
    """A test of this folder is next."""
    if _folders != [folder]:
        _folders[:] = [folder]
        for end in _ends:
            end()
