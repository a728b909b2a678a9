"""What can become of a small file that a program reads back."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe{}"),
    "null": lambda path: path.write_text("null"),
    "list": lambda path: path.write_text("[1]"),
    "number": lambda path: path.write_text("9" * 5000),
    "text": lambda path: path.write_text('"words"'),
    "other object": lambda path: path.write_text('{"step": "x", "outputs": {"a": 1}, "flow_run": 7, "status": []}'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "named pipe": _instead(os.mkfifo),
    "folder": _instead(Path.mkdir),
    "circle of links": _instead(lambda path: path.symlink_to(path)),
    "link to nowhere": _instead(lambda path: path.symlink_to("nowhere")),
    "link to a device": _instead(lambda path: path.symlink_to("/dev/zero")),
}
"""Damage by its name, done to a file."""

FOLDER_DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "gone": shutil.rmtree,
    "a file": lambda path: (shutil.rmtree(path), path.write_text("")),
    "a named pipe": lambda path: (shutil.rmtree(path), os.mkfifo(path)),
    "a circle of links": lambda path: (shutil.rmtree(path), path.symlink_to(path)),
}
"""The same for a folder."""
