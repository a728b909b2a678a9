"""Further requests of a generation on their way from the thread that receives them to the one that generates."""

import threading
from collections.abc import Sequence

from rl_core.types import GenerationRequest


class Inbox:
    """Holds requests until the generation asks for them. Generations are numbered as in `Outbox`, and the messages of
    each from 0: they are given in this order, in whichever they come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = 0
        self._next = 0
        self._came: dict[tuple[int, int], Sequence[GenerationRequest] | None] = {}

    def begin(self, generation: int) -> None:
        """Begin a generation; what came for an earlier one is dropped."""
        with self._lock:
            self._generation, self._next = generation, 0
            self._came = {place: requests for place, requests in self._came.items() if place[0] == generation}

    def put(self, generation: int, message: int, requests: Sequence[GenerationRequest] | None) -> None:
        """Put a message in; None says that it is the last one."""
        with self._lock:
            if generation >= self._generation:
                self._came[generation, message] = requests

    def further(self) -> list[GenerationRequest] | None:
        """Those that have come since the last call; None after the last message."""
        found: list[GenerationRequest] = []
        with self._lock:
            while (place := (self._generation, self._next)) in self._came:
                requests = self._came[place]
                if requests is None:
                    return found or None
                found += requests
                self._next += 1
        return found
