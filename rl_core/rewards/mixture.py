"""From the outcomes of a sample's functions to its score."""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from rl_core.rewards.components import OVERALL, number_problem
from rl_core.rewards.messages import CallResult
from rl_core.rewards.routing import Route
from rl_core.types import Score


def combine(route: Route, outcomes: Sequence[CallResult]) -> Score:
    """The score of a sample, given one outcome a term of its route.

    A mixture's `overall` is the weighted sum of its terms'. The first term's other components keep their names, those
    of the others read `term/component`, and every term's own overall is `term/overall`. One failure is the sample's.
    """
    pairs = list(zip(route.terms, outcomes, strict=True))
    parsed = None if route.reader is None else outcomes[route.reader].parsed
    if not route.is_mixture:
        (outcome,) = outcomes
        return Score(components=outcome.components, parsed=parsed, error=outcome.error)
    if errors := [f"{term.name}: {outcome.error}" for term, outcome in pairs if outcome.error is not None]:
        return Score(components={}, error="; ".join(errors))
    overall = _sum([term.weight * outcome.components[OVERALL] for term, outcome in pairs])
    if (reason := number_problem(overall)) is not None:
        return Score(components={}, error=f"the weighted sum {reason}")
    components = {OVERALL: overall}
    for place, (term, outcome) in enumerate(pairs):
        for name, value in outcome.components.items():
            is_bare = place == 0 and name != OVERALL
            components[name if is_bare else f"{term.name}/{name}"] = value
    return Score(components=components, parsed=parsed)


def _sum(numbers: Sequence[float]) -> float:
    """NaN where there is none: numbers beyond all floats, or infinities that cancel each other."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.nan


class PendingScore:
    """Combines the outcomes of a sample once the last one has come, in whichever thread brings it."""

    def __init__(self, route: Route, outcomes: Sequence["Future[CallResult]"]) -> None:
        self.score: Future[Score] = Future()
        self._route = route
        self._outcomes = outcomes
        self._missing = len(outcomes)
        self._lock = threading.Lock()
        for outcome in outcomes:
            outcome.add_done_callback(self._one_came)

    def _one_came(self, _: "Future[CallResult]") -> None:
        with self._lock:
            self._missing -= 1
            is_last = self._missing == 0
        if is_last:
            self._finish()

    def _finish(self) -> None:
        if any(outcome.cancelled() for outcome in self._outcomes):
            self.score.cancel()
            return
        error = next(filter(None, (outcome.exception() for outcome in self._outcomes)), None)
        if error is not None:
            self.score.set_exception(error)
        else:
            self.score.set_result(combine(self._route, [outcome.result() for outcome in self._outcomes]))
