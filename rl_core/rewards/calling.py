"""Calling a loaded function: one sample after the other, several at one time, or all in one call."""

import asyncio
import inspect
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rl_core.rewards.components import components_of
from rl_core.rewards.loading import Scorer
from rl_core.rewards.messages import CallResult
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import PARSER, RewardSpec
from rl_core.user_code.failures import failure_text
from rl_core.wording import plain_text

SLICE_SECONDS = 0.1
"""A process gives back the rest of its chunk after this long: then another one may take it, and the time limit of a
chunk stays that of one call plus this."""


class BatchFailed(Exception):
    """A call with a whole batch raised, or returned something else than a list of one result a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardCaller:
    """A loaded function and its limits, in a scoring process.

    Attributes:
        scorer: The function.
        memory_limit_bytes: For messages.
        runner: The process's event loop. One for its whole life: a client that a reward file keeps belongs to a loop.
    """

    scorer: Scorer
    memory_limit_bytes: int
    runner: asyncio.Runner

    def outcomes(self, samples: Sequence[RewardSample], *, timeout_seconds: float, reason: str) -> list[CallResult]:
        """Outcomes of the first samples, at least of one; of all of them for a batch or an `async def` function.

        Args:
            samples: One or more.
            timeout_seconds: Limit of one call of an `async def` function; the server watches over all others.
            reason: The outcome of one that took longer.

        Raises:
            BatchFailed: a call with more than one sample failed as a whole.
        """
        if self.scorer.spec.style == "batch":
            return self._as_batch(samples)
        if self.scorer.spec.is_async:
            return self.runner.run(self._together(samples, timeout_seconds, reason))
        return self._in_turn(samples)

    def describe(self, error: BaseException) -> str:
        """An exception of the function, in words."""
        if isinstance(error, MemoryError):
            return f"MemoryError: more than reward.memory_limit_gib = {self.memory_limit_bytes / 2**30:g}"
        return error_text(error, self.scorer.spec)

    def _in_turn(self, samples: Sequence[RewardSample]) -> list[CallResult]:
        began = time.perf_counter()
        outcomes = []
        for sample in samples:
            outcomes.append(self._one(sample))
            if time.perf_counter() - began > SLICE_SECONDS:
                break
        return outcomes

    def _one(self, sample: RewardSample) -> CallResult:
        _seed_library_generators([sample])
        try:
            return self._outcome(sample, self._finished(self.scorer.score(sample)))
        except BaseException as error:  # noqa: BLE001 - a stranger's function may raise anything; it costs this sample
            return self._failure(error)

    def _finished(self, result: object) -> object:
        """A plain function may return an awaitable too: a decorated `async def`, say."""
        return self.runner.run(_await(result)) if inspect.isawaitable(result) else result

    async def _together(self, samples: Sequence[RewardSample], timeout_seconds: float, reason: str) -> list[CallResult]:
        # Calls that take turns share the library generators: they are seeded, but not sample by sample.
        _seed_library_generators(samples)
        calls = [self._one_of_several(sample, timeout_seconds, reason) for sample in samples]
        return await asyncio.gather(*calls)

    async def _one_of_several(self, sample: RewardSample, timeout_seconds: float, reason: str) -> CallResult:
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                result = self.scorer.score(sample)
                return self._outcome(sample, await result if inspect.isawaitable(result) else result)
        except BaseException as error:  # noqa: BLE001 - as above
            return CallResult({}, None, reason) if limit.expired() else self._failure(error)

    def _as_batch(self, samples: Sequence[RewardSample]) -> list[CallResult]:
        _seed_library_generators(samples)
        try:
            results = _one_each(self._finished(self.scorer.score_batch(samples)), len(samples))
        except BaseException as error:  # noqa: BLE001 - as above
            if len(samples) == 1:
                return [self._failure(error)]
            raise BatchFailed(self.describe(error)) from None
        return [self._checked(sample, result) for sample, result in zip(samples, results, strict=True)]

    def _checked(self, sample: RewardSample, result: object) -> CallResult:
        try:
            return self._outcome(sample, result)
        except BaseException as error:  # noqa: BLE001 - a result may be an object of the stranger's
            return self._failure(error)

    def _outcome(self, sample: RewardSample, result: object) -> CallResult:
        return CallResult(components_of(_the_only_one(result)), self._parsed(sample.response), None)

    def _parsed(self, response: str) -> str | None:
        parsed = self.scorer.parse(response) if self.scorer.parse else None
        if not isinstance(parsed, str | None):
            raise ValueError(f"`{PARSER}` returned {type(parsed).__name__}, not text or None")
        return None if parsed is None else plain_text(parsed)

    def _failure(self, error: BaseException) -> CallResult:
        return CallResult({}, None, self.describe(error))


def error_text(error: BaseException, spec: RewardSpec) -> str:
    """A stranger's exception in words, with the place in the user's file, or in a neighbour of it, that it came from;
    nothing is said of the place in a built-in."""
    return failure_text(error, spec.source.parent if isinstance(spec.source, Path) else None)


async def _await(result: Awaitable[object]) -> object:
    return await result


def _the_only_one(result: object) -> object:
    """The result itself, or what a generator yields as its only one."""
    if not isinstance(result, Generator):
        return result
    yielded = list(islice(result, 2))
    if len(yielded) != 1:
        found = "nothing" if not yielded else "several results"
        raise ValueError(f"yielded {found} for one sample")
    return yielded[0]


def _one_each(results: object, count: int) -> Sequence[object]:
    """What a batch call returned: a list, or whatever else gives one result a sample when it is gone through."""
    wanted = f"for a batch of {count}, not a list with one result a sample"
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise ValueError(f"returned {type(results).__name__} {wanted}")
    found = list(islice(results, count + 1))
    if len(found) != count:
        number = f"{len(found)} results" if len(found) < count else "more results than samples"
        raise ValueError(f"returned {number} {wanted}")
    return found


def _seed_library_generators(samples: Sequence[RewardSample]) -> None:
    """A function that draws from a global generator scores a sample alike in every process and order of arrival."""
    seed = 0
    for sample in samples:
        seed = zlib.crc32(f"{sample.prompt}\x1f{sample.response}".encode(errors="surrogatepass"), seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
