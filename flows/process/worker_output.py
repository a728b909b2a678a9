"""What a flow's process prints goes through its worker; the worker's end must not be the flow's."""

import atexit
import os
import sys
from functools import cache
from threading import Thread

_LAST_WORDS = 2.0
"""Seconds that what is still on its way gets at the end of the process."""


@cache
def outlive_the_reader() -> None:
    """From now on whoever reads this process's output may go away; what is printed after that is lost.

    A worker reads it through pipes. Without this, the first line after the worker's death would end the process: Rich,
    which prints Prefect's log, exits on a broken pipe, and children get SIGPIPE.
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
        os.dup2(nowhere, descriptor)  # the end of the pipe, unless a child holds it too
        forwarding.join(_LAST_WORDS)

    atexit.register(finish)


def _forward(source: int, reader: int) -> None:
    """Hand on what comes until its end, or drop it once nobody reads."""
    is_read = True
    while chunk := os.read(source, 1 << 16):
        while is_read and chunk:
            try:
                chunk = chunk[os.write(reader, chunk) :]
            except BrokenPipeError:
                is_read = False
