"""Calls a loaded function: input by input, with several inputs concurrently, or with a whole batch. Only processes that
run user code do this."""

import asyncio
import inspect
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.isolation.order import Function, Input, Order, Result, Spec
from rl_core.user_code.failures import failure_text

SLICE_SECONDS = 0.1
"""After this time a process gives back the rest of its chunk, so that another process may take it. The time limit of a
chunk is the limit of one call plus this."""


class BatchFailed(Exception):
    """A call with a whole batch raised an exception, or did not return a list with one result for each input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionCaller:
    """A loaded function of an order.

    The event loop of `runner` lives as long as the process, because a client that a user's file keeps is bound to it.
    """

    function: Function
    order: Order
    runner: asyncio.Runner

    def results(self, inputs: Sequence[Input], *, timeout_seconds: float, reason: str) -> list[Result]:
        """Results of the first inputs: of one at least, of all for a batch or an `async def` function. Raises
        BatchFailed where a call with several inputs failed as a whole. `timeout_seconds` limits one call of an `async
        def` function, with `reason` as the error; the run enforces all other limits."""
        if self.function.spec.is_batch:
            return self._as_batch(inputs)
        if self.function.spec.is_async:
            return self.runner.run(self._concurrently(inputs, timeout_seconds, reason))
        return self._one_by_one(inputs)

    def describe(self, error: BaseException) -> str:
        """The error of an input for which the function raised an exception."""
        if isinstance(error, MemoryError):
            limit = self.order.memory_limit_bytes / 2**30
            return f"MemoryError: more than {self.order.section}.memory_limit_gib = {limit:g}"
        return error_text(error, self.function.spec)

    def _one_by_one(self, inputs: Sequence[Input]) -> list[Result]:
        began = time.perf_counter()
        results = []
        for one in inputs:
            results.append(self._one(one))
            if time.perf_counter() - began > SLICE_SECONDS:
                break
        return results

    def _one(self, one: Input) -> Result:
        seed_library_generators(one.seed_text)
        try:
            return self._checked(one, self._awaited(self.function.call(one)))
        except BaseException as error:  # noqa: BLE001 - a user function may raise anything; it costs this input
            return self._failure(error)

    def _awaited(self, returned: object) -> object:
        # A plain function may return an awaitable too, for example a decorated `async def`.
        return self.runner.run(_await(returned)) if inspect.isawaitable(returned) else returned

    async def _concurrently(self, inputs: Sequence[Input], timeout_seconds: float, reason: str) -> list[Result]:
        # Concurrent calls share the global random generators: these are seeded once for all inputs, not for each.
        seed_library_generators(*(one.seed_text for one in inputs))
        return await asyncio.gather(*(self._one_of_several(one, timeout_seconds, reason) for one in inputs))

    async def _one_of_several(self, one: Input, timeout_seconds: float, reason: str) -> Result:
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                returned = self.function.call(one)
                return self._checked(one, await returned if inspect.isawaitable(returned) else returned)
        except BaseException as error:  # noqa: BLE001 - a user function may raise anything
            return self.order.failed(reason) if limit.expired() else self._failure(error)

    def _as_batch(self, inputs: Sequence[Input]) -> list[Result]:
        seed_library_generators(*(one.seed_text for one in inputs))
        try:
            returned = _one_each(self._awaited(self.function.call_all(inputs)), len(inputs))
        except BaseException as error:  # noqa: BLE001 - a user function may raise anything
            if len(inputs) == 1:
                return [self._failure(error)]
            raise BatchFailed(self.describe(error)) from None
        return [self._checked(one, found) for one, found in zip(inputs, returned, strict=True)]

    def _checked(self, one: Input, returned: object) -> Result:
        try:
            return self.function.result(one, returned)
        except BaseException as error:  # noqa: BLE001 - the returned object may be of a user class
            return self._failure(error)

    def _failure(self, error: BaseException) -> Result:
        return self.order.failed(self.describe(error))


def error_text(error: BaseException, spec: Spec) -> str:
    """An exception of a user function in words, with the line of a user file, or of a file beside it."""
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


def seed_library_generators(*texts: str) -> None:
    """Seed the global generators of `random` and, where it is loaded, numpy, so that a function which draws from them
    gives the same in every process and order."""
    seed = 0
    for text in texts:
        seed = zlib.crc32(text.encode(errors="surrogatepass"), seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
