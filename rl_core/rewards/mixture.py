"""Combines the results of a sample's reward functions into its score."""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from rl_core.rewards.components import OVERALL, number_problem
from rl_core.rewards.messages import CallResult
from rl_core.rewards.routing import Route
from rl_core.types import Score


def combine(route: Route, results: Sequence[CallResult]) -> Score:
    """The score of a sample, given one result for each term of its route.

    The `overall` of a mixture is the weighted sum of the terms' `overall`. The other components of the first term keep
    their names; components of the other terms are named `term/component`, and each term's own `overall` is named
    `term/overall`. If one term fails, the sample has no score.
    """
    pairs = list(zip(route.terms, results, strict=True))
    parsed = None if route.reader is None else results[route.reader].parsed
    if not route.is_mixture:
        (result,) = results
        return Score(components=result.components, parsed=parsed, error=result.error)
    if errors := [f"{term.name}: {result.error}" for term, result in pairs if result.error is not None]:
        return Score(components={}, error="; ".join(errors))
    overall = _sum([term.weight * result.components[OVERALL] for term, result in pairs])
    if (reason := number_problem(overall)) is not None:
        return Score(components={}, error=f"the weighted sum {reason}")
    components = {OVERALL: overall}
    for place, (term, result) in enumerate(pairs):
        for name, value in result.components.items():
            has_no_prefix = place == 0 and name != OVERALL
            components[name if has_no_prefix else f"{term.name}/{name}"] = value
    return Score(components=components, parsed=parsed)


def _sum(numbers: Sequence[float]) -> float:
    """The exact sum; NaN if it overflows, or if infinities cancel each other."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.nan


class PendingScore:
    """Combines the results of a sample when the last one has come, in the thread that delivers it."""

    def __init__(self, route: Route, results: Sequence["Future[CallResult]"]) -> None:
        self.score: Future[Score] = Future()
        self._route = route
        self._results = results
        self._missing = len(results)
        self._lock = threading.Lock()
        for result in results:
            result.add_done_callback(self._one_came)

    def _one_came(self, _: "Future[CallResult]") -> None:
        with self._lock:
            self._missing -= 1
            is_last = self._missing == 0
        if is_last:
            self._finish()

    def _finish(self) -> None:
        if any(result.cancelled() for result in self._results):
            self.score.cancel()
            return
        error = next(filter(None, (result.exception() for result in self._results)), None)
        if error is not None:
            self.score.set_exception(error)
        else:
            self.score.set_result(combine(self._route, [result.result() for result in self._results]))
