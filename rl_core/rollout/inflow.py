"""The requests of a generation that the engine does not have yet."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from rl_core.models.pixels import PixelCache
from rl_core.types import Further, GenerationRequest, RequestFeed, Requests

_REQUESTS_AHEAD: Final = 128
"""Images are prepared for this many requests in advance, and for no more, because they need memory."""


class Inflow:
    """What is there from the beginning, and after it what comes in the middle.

    Ranks that hold an engine together hear of the same requests in the same order, and not at the same time. So each
    offers as many as it has heard of, and all accept the least number that one of them has offered.
    """

    def __init__(self, requests: Requests, pixels: PixelCache) -> None:
        """Takes `pixels` to prepare the images of requests in the background."""
        feed = requests if isinstance(requests, RequestFeed) else RequestFeed(requests, _nothing)
        self._pixels = pixels
        self._first = self._with_images_ahead(feed.first)
        self._further: Further | None = feed.further
        self._heard: deque[GenerationRequest | None] = deque()  # None is the end
        self._accepted: deque[GenerationRequest] = deque()
        self.is_open = True
        """Whether more may be accepted."""

    def take(self, most: int) -> list[GenerationRequest]:
        """The next ones."""
        taken = [*islice(self._first, most)]
        return taken + [self._accepted.popleft() for _ in range(min(most - len(taken), len(self._accepted)))]

    def offered(self) -> int:
        """How many have come that are not accepted yet, the end counted as one."""
        if self._further is not None:
            if (came := self._further()) is None:
                self._heard.append(None)
                self._further = None
            else:
                self._pixels.prepare(_images_of(came))
                self._heard.extend(came)
        return len(self._heard)

    def accept(self, number: int) -> None:
        """Let so many of those that have come be taken."""
        for _ in range(number):
            request = self._heard.popleft()
            if request is None:
                self.is_open = False
            else:
                self._accepted.append(request)

    def _with_images_ahead(self, requests: Sequence[GenerationRequest]) -> Iterator[GenerationRequest]:
        """The requests, while the images of the next ones are prepared."""
        for start in range(0, len(requests), _REQUESTS_AHEAD):
            self._pixels.prepare(_images_of(requests[start : start + 2 * _REQUESTS_AHEAD]))
            yield from requests[start : start + _REQUESTS_AHEAD]


def _nothing() -> None:
    """After a list nothing comes."""


def _images_of(requests: Sequence[GenerationRequest]) -> Iterator[str]:
    """Those without videos, whose images are prepared with them."""
    return (uid for request in requests if not request.prompt.videos for uid in request.prompt.image_uids)
