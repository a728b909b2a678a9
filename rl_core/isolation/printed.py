"""What user functions print, on its way to the error stream of the run."""

import os
import threading

MAX_HELD = 4 * 2**20
"""Most bytes that wait for an error stream that nobody reads, such as a stopped terminal. What comes then is left
out."""

_PIECE = 64 * 1024
"""Most bytes that are read at a time."""

_STDERR = 2

_LAST_SECONDS = 2.0
"""So long `close` waits for each of the two threads."""


class PrintedOutput:
    """Passes on what isolated processes write to `descriptor`. None of them ever waits for the error stream, because a
    thread of its own always reads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held = bytearray()
        self._left_out = 0
        self._is_over = False
        targets = {"printed-by-functions": self._receive, "print-of-functions": self._pass_on}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in targets.items()]

    def start(self) -> None:
        """Before the first isolated process."""
        self._source, self.descriptor = os.pipe()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """After the last isolated process: pass on the rest, if somebody reads it."""
        os.close(self.descriptor)
        for thread in self._threads:
            thread.join(_LAST_SECONDS)

    def _receive(self) -> None:
        while piece := os.read(self._source, _PIECE):
            with self._changed:
                if self._left_out or len(self._held) + len(piece) > MAX_HELD:
                    self._left_out += len(piece)
                else:
                    self._held += piece
                self._changed.notify()
        os.close(self._source)
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _pass_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held or self._is_over)
                text, self._held = self._held, bytearray()
                left_out, self._left_out = self._left_out, 0
            if not text:
                return
            if left_out:
                text += (
                    f"\n[{left_out} bytes that your functions printed are left out: nobody read this stream]\n".encode()
                )
            _write(memoryview(text))


def _write(text: memoryview) -> None:
    while text:
        try:
            text = text[os.write(_STDERR, text) :]
        except OSError:  # the stream has ended, or its disk is full
            return
