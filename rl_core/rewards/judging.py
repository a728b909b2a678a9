"""Calling a loaded function: one sample after the other, several at one time, or all in one call."""

import asyncio
import inspect
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from rl_core.redaction import redact
from rl_core.rewards.components import components_of, plain_text
from rl_core.rewards.loading import Scorer
from rl_core.rewards.messages import Outcome
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import PARSER

SLICE_SECONDS = 0.1
"""A process gives back the rest of its chunk after this long: then another one may take it, and the time limit of a
chunk stays that of one call plus this."""


_LONGEST_REASON = 2000
"""Characters; an error may repeat the whole answer of a server."""


class BatchFailed(Exception):
    """A call with a whole batch raised, or returned something else than a list of one result a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judge:
    """A loaded function and its limits, in a scoring process.

    Attributes:
        scorer: The function.
        timeout_seconds: Limit of one call of an `async def` function; the server watches over all others.
        memory_limit_bytes: For messages.
        runner: The process's event loop. One for its whole life: a client that a reward file keeps belongs to a loop.
    """

    scorer: Scorer
    timeout_seconds: float
    memory_limit_bytes: int
    runner: asyncio.Runner

    def outcomes(self, samples: Sequence[RewardSample]) -> list[Outcome]:
        """Outcomes of the first samples, at least of one; of all of them for a batch or an `async def` function.

        Raises:
            BatchFailed: a call with more than one sample failed as a whole.
        """
        if self.scorer.spec.style == "batch":
            return self._as_batch(samples)
        if self.scorer.spec.is_async:
            return self.runner.run(self._together(samples))
        return self._in_turn(samples)

    def describe(self, error: Exception) -> str:
        """An exception of the function, in words."""
        if isinstance(error, MemoryError):
            return f"MemoryError: more than reward.memory_limit_gib = {self.memory_limit_bytes / 2**30:g}"
        return error_text(error)

    def _in_turn(self, samples: Sequence[RewardSample]) -> list[Outcome]:
        began = time.perf_counter()
        outcomes = []
        for sample in samples:
            outcomes.append(self._one(sample))
            if time.perf_counter() - began > SLICE_SECONDS:
                break
        return outcomes

    def _one(self, sample: RewardSample) -> Outcome:
        _seed_library_generators([sample])
        try:
            return self._outcome(sample, self._finished(self.scorer.score(sample)))
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything; it costs this sample
            return self._failure(error)

    def _finished(self, result: object) -> object:
        """A plain function may return an awaitable too: a decorated `async def`, say."""
        return self.runner.run(_await(result)) if inspect.isawaitable(result) else result

    async def _together(self, samples: Sequence[RewardSample]) -> list[Outcome]:
        # Calls that take turns share the library generators: they are seeded, but not sample by sample.
        _seed_library_generators(samples)
        return await asyncio.gather(*map(self._one_of_several, samples))

    async def _one_of_several(self, sample: RewardSample) -> Outcome:
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                result = self.scorer.score(sample)
                return self._outcome(sample, await result if inspect.isawaitable(result) else result)
        except Exception as error:  # noqa: BLE001 - as above
            return Outcome({}, None, timeout_reason(self.timeout_seconds)) if limit.expired() else self._failure(error)

    def _as_batch(self, samples: Sequence[RewardSample]) -> list[Outcome]:
        _seed_library_generators(samples)
        try:
            results = _one_each(self._finished(self.scorer.score_batch(samples)), len(samples))
        except Exception as error:  # noqa: BLE001 - as above
            if len(samples) == 1:
                return [self._failure(error)]
            raise BatchFailed(self.describe(error)) from None  # in words: a stranger's exception may not pickle
        return [self._checked(sample, result) for sample, result in zip(samples, results, strict=True)]

    def _checked(self, sample: RewardSample, result: object) -> Outcome:
        try:
            return self._outcome(sample, result)
        except ValueError as error:
            return self._failure(error)

    def _outcome(self, sample: RewardSample, result: object) -> Outcome:
        return Outcome(components_of(result), self._parsed(sample.response), None)

    def _parsed(self, response: str) -> str | None:
        parsed = self.scorer.parse(response) if self.scorer.parse else None
        if not isinstance(parsed, str | None):
            raise ValueError(f"`{PARSER}` returned {type(parsed).__name__}, not text or None")
        return None if parsed is None else plain_text(parsed)

    def _failure(self, error: Exception) -> Outcome:
        return Outcome({}, None, self.describe(error))


def error_text(error: BaseException) -> str:
    """A stranger's exception, in words that any file can hold, not too many of them: every sample may raise it."""
    text = redact(f"{type(error).__name__}: {error}")  # a client's error may repeat the key that it was refused with
    cut = text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}... (of {len(text)} characters)"
    return plain_text(cut)


def timeout_reason(timeout_seconds: float) -> str:
    """Why a call that took too long has no score."""
    return f"no result within reward.timeout_seconds = {timeout_seconds:g}"


async def _await(result: Awaitable[object]) -> object:
    return await result


def _one_each(results: object, count: int) -> Sequence[object]:
    if not isinstance(results, Sequence) or len(results) != count:
        found = f"{len(results)} results" if isinstance(results, Sequence) else type(results).__name__
        raise ValueError(f"returned {found} for a batch of {count}, not a list with one result a sample")
    return results


def _seed_library_generators(samples: Sequence[RewardSample]) -> None:
    """A function that draws from a global generator scores a sample alike in every process and order of arrival."""
    seed = 0
    for sample in samples:
        seed = zlib.crc32(f"{sample.prompt}\x1f{sample.response}".encode(errors="surrogatepass"), seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
