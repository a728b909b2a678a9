"""Which reward functions score a sample, by its data source, and how their results become its score."""

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from rl_core.rewards.components import OVERALL, number_problem
from rl_core.rewards.messages import CallResult, RewardSpec
from rl_core.types import Score
from rl_core.unscored import NOT_FOR_SAMPLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One function of a route: its index in Routing.specs, the prefix of its components, and its weight in a
    mixture."""

    function_index: int
    name: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The functions that score a sample together; only one unless they are a mixture. `reader` is the index of the
    first term whose function has a parser."""

    terms: Sequence[Term]
    is_mixture: bool
    reader: int | None

    @property
    def name(self) -> str:
        """The terms' names, for messages."""
        return " + ".join(term.name for term in self.terms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """All reward functions, each once, the routes of data sources, and the route of all others."""

    specs: Sequence[RewardSpec]
    by_source: Mapping[str, Route]
    fallback: Route | None

    def route_of(self, data_source: str) -> Route | None:
        """The route of a data source; None if the config has none for it."""
        return self.by_source.get(data_source, self.fallback)


def combine(route: Route, results: Sequence[CallResult]) -> Score:
    """The score of a sample, given one result for each term of its route. The `overall` of a mixture is the weighted
    sum of its terms' `overall`. Other components of the first term keep their names, unless these begin as those of a
    term do; all others are named `term/component`. If one term fails, the sample has no score; one that is not for it
    counts nothing, and if all are not, the sample has no score either."""
    pairs = list(zip(route.terms, results, strict=True))
    parsed = None if route.reader is None else results[route.reader].parsed
    if not route.is_mixture:
        (result,) = results
        return Score(components=result.components, parsed=parsed, error=result.error)
    skipped = [term.name for term, result in pairs if result.error == NOT_FOR_SAMPLE]
    given = [(term, result) for term, result in pairs if result.error != NOT_FOR_SAMPLE]
    if errors := [f"{term.name}: {result.error}" for term, result in given if result.error is not None]:
        return Score(components={}, error="; ".join(errors))
    if not given:
        return Score(components={}, parsed=parsed, error=NOT_FOR_SAMPLE)
    overall = _sum([term.weight * result.components[OVERALL] for term, result in given])
    if (reason := number_problem(overall)) is not None:
        return Score(components={}, error=f"the weighted sum {reason}")
    components = {OVERALL: overall}
    prefixes = tuple(f"{term.name}/" for term in route.terms)
    for place, (term, result) in enumerate(pairs):
        for name, value in result.components.items():
            has_no_prefix = place == 0 and name != OVERALL and not name.startswith(prefixes)
            components[name if has_no_prefix else f"{term.name}/{name}"] = value
    return Score(components=components, parsed=parsed, skipped=tuple(skipped))


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
