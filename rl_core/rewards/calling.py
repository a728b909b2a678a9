"""Loads a reward function and calls it: sample by sample, with several samples concurrently, or with a whole batch.
Only scoring processes do this."""

import asyncio
import importlib
import inspect
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl_core.rewards.call_forms import (
    accepted_names,
    easyr1_input,
    trl_arguments,
    verl_arguments,
    verl_batch_arguments,
    verl_result,
)
from rl_core.rewards.components import components_of
from rl_core.rewards.messages import PARSER, CallResult, RewardSpec
from rl_core.rewards.sample import RewardSample
from rl_core.unscored import NOT_FOR_SAMPLE
from rl_core.user_code.failures import failure_text
from rl_core.user_code.modules import import_file
from rl_core.wording import plain_text

SLICE_SECONDS = 0.1
"""After this time a process gives back the rest of its chunk, so that another process may take it. The time limit of a
chunk is the limit of one call plus this."""


class BatchFailed(Exception):
    """A call with a whole batch raised an exception, or did not return a list with one result per sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A loaded reward function with its keyword arguments bound; what it takes depends on `spec.style`. `parse` is the
    module's function that reads the answer from a response; `accepted` are the keywords that are left to give, None if
    it takes any; `answer_names` as in PoolOrder."""

    spec: RewardSpec
    function: Callable[..., object]
    parse: Callable[[str], str | None] | None
    accepted: frozenset[str] | None
    answer_names: Sequence[str]

    def score(self, sample: RewardSample) -> object:
        """What the function returns for one sample, which may be an awaitable."""
        if self.spec.style == "verl":
            return self.function(**verl_arguments(sample, accepted=self.accepted))
        return self.function(sample if self.spec.style == "sample" else easyr1_input(sample))

    def score_batch(self, samples: Sequence[RewardSample]) -> object:
        """What a function returns that gets many samples at a time."""
        if self.spec.style == "verl_batch":
            return self.function(**verl_batch_arguments(samples, accepted=self.accepted))
        if self.spec.style == "batch":
            return self.function([easyr1_input(sample) for sample in samples])
        arguments = trl_arguments(
            samples,
            answer_names=self.answer_names,
            reads_messages=self.spec.reads_messages,
            accepted=self.accepted,
        )
        return self.function(**arguments)

    def components(self, returned: object) -> dict[str, float] | None:
        """The components of what it returned for one sample; None where it is not for this sample. Raises ValueError as
        `components_of`."""
        one = verl_result(returned) if self.spec.style in ("verl", "verl_batch") else returned
        return None if one is None else components_of(one)


def load_scorer(spec: RewardSpec, *, answer_names: Sequence[str] = ()) -> Scorer:
    """Import a function and bind its keyword arguments. Raises anything that the module raises, AttributeError when it
    does not define the function, and TypeError when what it defines cannot be called."""
    module = import_file(spec.source) if isinstance(spec.source, Path) else importlib.import_module(spec.source)
    if not hasattr(module, spec.function):
        raise AttributeError(f"{spec.source} defines no `{spec.function}` when it is imported")
    function = getattr(module, spec.function)
    if not callable(function):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(function).__name__}, not a function")
    accepted = accepted_names(function)
    return Scorer(
        spec=spec,
        function=partial(function, **spec.kwargs),
        parse=getattr(module, PARSER) if spec.has_parser else None,
        accepted=None if accepted is None else accepted - set(spec.kwargs),
        answer_names=answer_names,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardCaller:
    """A loaded function and its limits, in a scoring process.

    The event loop of `runner` lives as long as the process, because a client that a reward file keeps is bound to it.
    """

    scorer: Scorer
    memory_limit_bytes: int
    runner: asyncio.Runner

    def results(self, samples: Sequence[RewardSample], *, timeout_seconds: float, reason: str) -> list[CallResult]:
        """Results of the first samples: of one at least, of all for a batch or an `async def` function. Raises
        BatchFailed where a call with several samples failed as a whole. `timeout_seconds` limits one call of an `async
        def` function, with `reason` as the error; the run enforces all other limits."""
        if self.scorer.spec.is_batch:
            return self._as_batch(samples)
        if self.scorer.spec.is_async:
            return self.runner.run(self._concurrently(samples, timeout_seconds, reason))
        return self._one_by_one(samples)

    def describe(self, error: BaseException) -> str:
        """The error of a sample for which the function raised an exception."""
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
        # A plain function may return an awaitable too, for example a decorated `async def`.
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
        return [self._checked(sample, one) for sample, one in zip(samples, returned, strict=True)]

    def _checked(self, sample: RewardSample, returned: object) -> CallResult:
        try:
            components = self.scorer.components(returned)
            if components is None:
                return CallResult({}, None, NOT_FOR_SAMPLE)
            return CallResult(components, self._parsed(sample.response), None)
        except BaseException as error:  # noqa: BLE001 - the returned object may be of a user's class
            return self._failure(error)

    def _parsed(self, response: str) -> str | None:
        parsed = self.scorer.parse(response) if self.scorer.parse else None
        if not isinstance(parsed, str | None):
            raise ValueError(f"`{PARSER}` returned {type(parsed).__name__}, not text or None")
        return None if parsed is None else plain_text(parsed)

    def _failure(self, error: BaseException) -> CallResult:
        return CallResult({}, None, self.describe(error))


def error_text(error: BaseException, spec: RewardSpec) -> str:
    """An exception of a reward function in words, with the line of a user's file, or of a file beside it."""
    return failure_text(error, spec.source.parent if isinstance(spec.source, Path) else None)


async def _await(returned: Awaitable[object]) -> object:
    return await returned


def _one_each(returned: object, count: int) -> Sequence[object]:
    wanted = f"for a batch of {count}, not a list with one result for each sample"
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise ValueError(f"returned {type(returned).__name__} {wanted}")
    found = list(returned)
    if len(found) != count:
        raise ValueError(f"returned {len(found)} results {wanted}")
    return found


def _seed_library_generators(samples: Sequence[RewardSample]) -> None:
    # So that a function with a global random generator scores a sample alike in every process and order.
    seed = 0
    for sample in samples:
        seed = zlib.crc32(f"{sample.prompt}\x1f{sample.response}".encode(errors="surrogatepass"), seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
