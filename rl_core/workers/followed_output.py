"""Passes on what the workers of a local cluster write on their standard output and error, which Ray keeps in files."""

import sys
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

from rl_core.redaction import redact

_LOOK_SECONDS: Final = 0.5


class FollowedOutput:
    """A thread that writes the lines of all workers, such as the messages of a library or a `print` in a user's loss,
    on the standard error of this process."""

    def __init__(self, folder: Path) -> None:
        """Follow the files of Ray's logs in a folder."""
        self._folder = folder
        self._read: defaultdict[Path, int] = defaultdict(int)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="output-of-workers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on what is left, and end."""
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self._pass_on()
        self._pass_on()

    def _pass_on(self) -> None:
        for file in sorted([*self._folder.glob("worker-*.out"), *self._folder.glob("worker-*.err")]):
            with suppress(OSError):  # Ray has ended, and its files are gone
                lines = self._new_lines(file)
                sys.stderr.write("".join(f"{redact(line)}\n" for line in lines if is_message(line)))

    def _new_lines(self, file: Path) -> list[str]:
        """The lines that were completed since the last look."""
        with file.open("rb") as stream:
            stream.seek(self._read[file])
            whole, end, _ = stream.read().rpartition(b"\n")
        self._read[file] += len(whole) + len(end)
        return whole.decode(errors="replace").splitlines()


def is_message(line: str) -> bool:
    """Whether a line is neither empty nor one of Ray's marks."""
    return bool(line.strip()) and not line.startswith(":")
