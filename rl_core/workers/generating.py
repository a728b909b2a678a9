"""A generation at several workers: generators answer blocks of prompts, and rollouts come as they finish anywhere."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, Literal

from rl_core.types import Further, GenerationRequest, RequestFeed, Requests, Rollout, Sampling
from rl_core.workers.actor_group import SECONDS_AFTER_ERROR, ActorGroup
from rl_core.workers.dealing import equal_blocks, shrinking_blocks

_NUMBERS: Final = count(1)
"""Numbers of blocks; a later one is larger (rl_core.workers.outbox)."""


class Generation:
    """The responses to some requests, from all generators of a group.

    The responses of a block depend on the block and the weights alone (`VllmEngine.generate`), so it does not matter
    which generator answers which block, nor when. All ranks of a generator get its blocks, and the first of them gives
    the rollouts. Further requests go to the generator of their group, which has computed the turns before.
    """

    def __init__(
        self,
        group: ActorGroup,
        requests: Requests,
        sampling: Sampling,
        *,
        dealing: Literal["static", "dynamic"],
        ranks_per_generator: int = 1,
    ) -> None:
        """Nothing begins before `rollouts`. With `static` dealing, or where some requests come later, each generator
        gets an equal block at once; with `dynamic` one that is done takes more."""
        self._further: Further | None = None
        blocks = equal_blocks if dealing == "static" else shrinking_blocks
        if isinstance(requests, RequestFeed):
            self._further, blocks = requests.further, equal_blocks
            requests = requests.first
        self._actors = group
        self._sampling = sampling
        self._ranks_per_generator = ranks_per_generator
        self._blocks = deque(block for block in blocks(requests, len(group) // ranks_per_generator) if block)
        self._fed: dict[int, int] = {}
        self._generator_of: dict[int, int] = {}
        self._error: Exception | None = None
        self._answers: dict[Any, int] = {}
        self._numbers: dict[int, int] = {}
        self._taking: dict[Any, int] = {}
        self.is_running = False

    def rollouts(self) -> Iterator[Rollout]:
        """Yield rollouts as they finish. When the iterator is closed, the workers stop."""
        self.is_running = True
        try:
            for first in range(0, len(self._actors), self._ranks_per_generator):
                self._begin_block(first)
            while self._taking:
                waiting = self._taking | self._of_others
                for ref in self._actors.ready(waiting, "generate", meanwhile=self._further and self._feed):
                    if self._error is not None:
                        raise self._error
                    if ref not in self._taking:
                        self._finish({ref: self._answers[ref]})
                        continue
                    first = self._taking.pop(ref)
                    taken = self._actors.taken(ref, first)
                    if taken.is_last:
                        self._finish({ref: rank for ref, rank in self._answers.items() if rank == first})
                        self._begin_block(first)
                    else:
                        self._take(first)
                    yield from taken.rollouts
        except Exception:
            # Ranks may wait for the one of their generator that has failed. The first error is the one to report.
            with suppress(Exception):
                self.end(seconds=SECONDS_AFTER_ERROR)
            raise
        finally:
            self.end()

    def end(self, *, seconds: float | None = None) -> None:
        """Stop all workers, and drop what they still generate. Does nothing after the end. Where `seconds` are given,
        workers that take longer are ended."""
        self.is_running = False
        self._taking = {}
        answers, self._answers = self._answers, {}
        if not answers or self._actors.is_broken:
            return  # the error that broke it is the one to report
        self._end_feed()
        for first in {self._first(rank) for rank in answers.values()}:
            self._actors.stop(first, self._numbers[first])
        self._actors.finish(answers, "generate", seconds=seconds)

    @property
    def _of_others(self) -> dict[Any, int]:
        """Answers of ranks that give no rollouts: an error of theirs would otherwise leave their first rank waiting."""
        return {ref: rank for ref, rank in self._answers.items() if rank != self._first(rank)}

    def _first(self, rank: int) -> int:
        """The first rank of the generator that a rank belongs to."""
        return rank - rank % self._ranks_per_generator

    def _begin_block(self, first: int) -> None:
        if not self._blocks:
            return
        self._numbers[first] = next(_NUMBERS)
        block, is_fed = self._blocks.popleft(), self._further is not None
        if is_fed:
            self._fed[first] = 0
            self._generator_of |= {request.group_seed: first for request in block}
        ranks = self._ranks_of(first)
        answers = self._actors.generate(ranks, self._numbers[first], (block, self._sampling, is_fed))
        self._answers |= dict(zip(answers, ranks, strict=True))
        self._take(first)

    def _feed(self) -> None:
        """Give the generators what has come."""
        if self._further is None:
            return
        try:
            came = self._further()
        except Exception as error:  # noqa: BLE001 - raised when the generators are heard of again: they are not broken
            self._error, came = error, None
        if came is None:
            self._end_feed()
            return
        of_generators: dict[int, list[GenerationRequest]] = {}
        for request in came:
            of_generators.setdefault(self._generator_of[request.group_seed], []).append(request)
        for first, requests in of_generators.items():
            self._send(first, requests)

    def _end_feed(self) -> None:
        """Tell the generators that nothing more comes, for which they would wait."""
        if self._further is not None:
            self._further = None
            for first in self._fed:
                self._send(first, None)

    def _send(self, first: int, requests: Sequence[GenerationRequest] | None) -> None:
        self._actors.feed(self._ranks_of(first), self._numbers[first], self._fed[first], requests)
        self._fed[first] += 1

    def _ranks_of(self, first: int) -> range:
        """Those of the generator of a first rank."""
        return range(first, first + self._ranks_per_generator)

    def _take(self, first: int) -> None:
        self._taking[self._actors.take(first, self._numbers[first])] = first

    def _finish(self, answers: dict[Any, int]) -> None:
        for ref in answers:
            del self._answers[ref]
        self._actors.finish(answers, "generate")
