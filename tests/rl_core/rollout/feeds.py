"""Feeds of requests, as conversations give them whose tools take some time."""

import time
from collections.abc import Sequence

from rl_core.types import GenerationRequest, RequestFeed


def dripping(requests: Sequence[GenerationRequest], *, at_first: int, pause: float = 0.0) -> RequestFeed:
    """Some of the requests at first, the others one by one after so many seconds each, then the end."""
    waiting: list[GenerationRequest | None] = [*requests[at_first:], None]
    last = time.monotonic()

    def further() -> list[GenerationRequest] | None:
        nonlocal last
        if time.monotonic() - last < pause:
            return []
        last = time.monotonic()
        request = waiting.pop(0)
        return None if request is None else [request]

    return RequestFeed(requests[:at_first], further)
