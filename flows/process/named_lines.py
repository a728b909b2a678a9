"""Shows what a process prints beside others, line by line, each after the name of its run."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Self

_CHUNK_BYTES: Final = 1 << 16
_LEAST_COLUMNS: Final = 40


class NamedLines:
    """The lines of one process, each of which is shown after `name`.

    It prints into a file and not a pipe, so that it can go on when this process is gone. The file has no name, because
    the output may contain secrets.
    """

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self._name = name
        self._stream = stream
        self._read = 0
        self._rest = b""

    @classmethod
    @contextmanager
    def of(cls, name: str) -> Iterator[Self]:
        """The lines of a process that is started inside the block, and that has ended at its end."""
        with tempfile.TemporaryFile() as stream:
            lines = cls(name, stream)
            yield lines
            lines.show()
            lines._write([lines._rest])

    @property
    def stream(self) -> BinaryIO:
        """What the process gets as its stdout."""
        return self._stream

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables with which the process leaves room for the name in this terminal."""
        if not sys.stdout.isatty():
            return {}
        return {"COLUMNS": f"{max(_LEAST_COLUMNS, shutil.get_terminal_size().columns - len(self._prefix))}"}

    def show(self) -> None:
        """Show the lines that are complete and were not shown yet."""
        # The process writes at the position of the open file, which both share, so it must not be moved here.
        while chunk := os.pread(self._stream.fileno(), _CHUNK_BYTES, self._read):
            self._read += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._write(lines)

    @property
    def _prefix(self) -> str:
        return f"{self._name}: "

    def _write(self, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace").rstrip() for line in lines]
        shown = "".join(f"{self._prefix}{text}\n" for text in texts if text)
        encoding = sys.stdout.encoding or "utf-8"
        with suppress(OSError):  # nobody reads them any more, which is no reason to leave the run
            # At once, since other threads show the lines of other runs.
            sys.stdout.write(shown.encode(encoding, errors="replace").decode(encoding))
            sys.stdout.flush()
