"""Calling a loaded reward function: sample by sample, with several samples concurrently, or with a whole batch."""

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
from rl_core.rewards.messages import PARSER, CallResult, RewardSpec
from rl_core.rewards.sample import RewardSample
from rl_core.user_code.failures import failure_text
from rl_core.wording import plain_text

SLICE_SECONDS = 0.1
"""After this time a process gives back the rest of its chunk, so that another process may take it. The time limit of a
chunk is the limit of one call plus this."""


class BatchFailed(Exception):
    """A call with a whole batch raised an exception, or did not return a list with one result per sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardCaller:
    """A loaded function and its limits, in a scoring process.

    Attributes:
        memory_limit_bytes: The process's memory limit, for error messages.
        runner: The process's event loop. There is one for the whole life of the process, because a client that a reward
            file keeps is bound to its loop.
    """

    scorer: Scorer
    memory_limit_bytes: int
    runner: asyncio.Runner

    def results(self, samples: Sequence[RewardSample], *, timeout_seconds: float, reason: str) -> list[CallResult]:
        """Results of the first samples: of one at least, of all for a batch or an `async def` function.

        Args:
            timeout_seconds: Limit of one call of an `async def` function; the run enforces all other limits.
            reason: The error message for a call that took longer.

        Raises:
            BatchFailed: a call with more than one sample failed as a whole.
        """
        if self.scorer.spec.style == "batch":
            return self._as_batch(samples)
        if self.scorer.spec.is_async:
            return self.runner.run(self._concurrently(samples, timeout_seconds, reason))
        return self._one_by_one(samples)

    def describe(self, error: BaseException) -> str:
        """The message for an exception of the function."""
        if isinstance(error, MemoryError):
            return f"MemoryError: more than reward.memory_limit_gib = {self.memory_limit_bytes / 2**30:g}"
        return error_text(error, self.scorer.spec)

    def _one_by_one(self, samples: Sequence[RewardSample]) -> list[CallResult]:
        began = time.perf_counter()
        results = []
        for sample in samples:
            results.append(self._one(sample))
            if time.perf_counter() - began > SLICE_SECONDS:
                break
        return results

    def _one(self, sample: RewardSample) -> CallResult:
        _seed_library_generators([sample])
        try:
            return self._checked(sample, self._awaited(self.scorer.score(sample)))
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything; it costs this sample
            return self._failure(error)

    def _awaited(self, returned: object) -> object:
        """A plain function may return an awaitable too, for example a decorated `async def`."""
        return self.runner.run(_await(returned)) if inspect.isawaitable(returned) else returned

    async def _concurrently(
        self, samples: Sequence[RewardSample], timeout_seconds: float, reason: str
    ) -> list[CallResult]:
        # Concurrent calls share the global random generators: these are seeded once for all samples, not per sample.
        _seed_library_generators(samples)
        calls = [self._one_of_several(sample, timeout_seconds, reason) for sample in samples]
        return await asyncio.gather(*calls)

    async def _one_of_several(self, sample: RewardSample, timeout_seconds: float, reason: str) -> CallResult:
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                returned = self.scorer.score(sample)
                return self._checked(sample, await returned if inspect.isawaitable(returned) else returned)
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            return CallResult({}, None, reason) if limit.expired() else self._failure(error)

    def _as_batch(self, samples: Sequence[RewardSample]) -> list[CallResult]:
        _seed_library_generators(samples)
        try:
            returned = _one_each(self._awaited(self.scorer.score_batch(samples)), len(samples))
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            if len(samples) == 1:
                return [self._failure(error)]
            raise BatchFailed(self.describe(error)) from None
        return [self._checked_or_failed(sample, one) for sample, one in zip(samples, returned, strict=True)]

    def _checked_or_failed(self, sample: RewardSample, returned: object) -> CallResult:
        try:
            return self._checked(sample, returned)
        except BaseException as error:  # noqa: BLE001 - the returned object may be of a user's class
            return self._failure(error)

    def _checked(self, sample: RewardSample, returned: object) -> CallResult:
        return CallResult(components_of(_the_only_one(returned)), self._parsed(sample.response), None)

    def _parsed(self, response: str) -> str | None:
        parsed = self.scorer.parse(response) if self.scorer.parse else None
        if not isinstance(parsed, str | None):
            raise ValueError(f"`{PARSER}` returned {type(parsed).__name__}, not text or None")
        return None if parsed is None else plain_text(parsed)

    def _failure(self, error: BaseException) -> CallResult:
        return CallResult({}, None, self.describe(error))


def error_text(error: BaseException, spec: RewardSpec) -> str:
    """The message for an exception of a reward function. For a user's function it names the line, in the user's file or
    a file beside it, that raised the exception."""
    return failure_text(error, spec.source.parent if isinstance(spec.source, Path) else None)


async def _await(returned: Awaitable[object]) -> object:
    return await returned


def _the_only_one(returned: object) -> object:
    """The object itself, or the only value that a generator yields."""
    if not isinstance(returned, Generator):
        return returned
    yielded = list(islice(returned, 2))
    if len(yielded) != 1:
        found = "nothing" if not yielded else "several results"
        raise ValueError(f"yielded {found} for one sample")
    return yielded[0]


def _one_each(returned: object, count: int) -> Sequence[object]:
    wanted = f"for a batch of {count}, not a list with one result for each sample"
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise ValueError(f"returned {type(returned).__name__} {wanted}")
    found = list(islice(returned, count + 1))
    if len(found) != count:
        number = f"{len(found)} results" if len(found) < count else "more results than samples"
        raise ValueError(f"returned {number} {wanted}")
    return found


def _seed_library_generators(samples: Sequence[RewardSample]) -> None:
    """A function that uses a global random generator gives a sample the same score in every process and in every order
    of arrival."""
    seed = 0
    for sample in samples:
        seed = zlib.crc32(f"{sample.prompt}\x1f{sample.response}".encode(errors="surrogatepass"), seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
