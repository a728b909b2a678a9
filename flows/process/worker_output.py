"""Keeps a flow's process alive when its worker, which reads its output, is killed."""

import atexit
import os
import sys
from functools import cache
from threading import Thread

_LAST_WORDS = 2.0
"""Seconds for output that is still to be forwarded at the end of the process."""


@cache
def outlive_the_reader() -> None:
    """From now on the reader of this process's output may go away; later output is lost.

    A worker reads the output through pipes. Without this, the first line after the worker's death would end the
    process: Rich, which prints Prefect's log, exits on a broken pipe, and children get SIGPIPE.
    """
    for descriptor in (1, 2):
        _outlive_the_reader_of(descriptor)


def _outlive_the_reader_of(descriptor: int) -> None:
    reader = os.dup(descriptor)
    source, sink = os.pipe()
    os.dup2(sink, descriptor)
    os.close(sink)
    forwarding = Thread(target=_forward, args=(source, reader), name=f"output-{descriptor}", daemon=True)
    forwarding.start()

    def finish() -> None:
        (sys.stdout if descriptor == 1 else sys.stderr).flush()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)  # closes the pipe, unless a child process holds it too
        forwarding.join(_LAST_WORDS)

    atexit.register(finish)


def _forward(source: int, reader: int) -> None:
    """Forward all output until its end; drop it once there is no reader."""
    is_read = True
    while chunk := os.read(source, 1 << 16):
        while is_read and chunk:
            try:
                chunk = chunk[os.write(reader, chunk) :]
            except BrokenPipeError:
                is_read = False
