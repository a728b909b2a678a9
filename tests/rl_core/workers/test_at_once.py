"""Of two calls that wait for each other, none is left waiting, and the cause of a failure is what is raised."""

import time
from threading import Event

import pytest

from rl_core.workers.protocol import WorkerDied
from rl_core.workers.split_group import Side, at_once

MOMENT = 0.05
LONG = 60.0


def returning() -> Side:
    return Side(call=lambda: None, end=lambda: None)


def failing(error: Exception, *, after: float = 0.0) -> Side:
    def call() -> None:
        time.sleep(after)
        raise error

    return Side(call=call, end=lambda: None)


def waiting() -> Side:
    """A call that waits until its workers are ended."""
    ended = Event()

    def call() -> None:
        assert ended.wait(LONG), "nobody has ended it"
        raise WorkerDied("its workers were ended")

    return Side(call=call, end=ended.set)


def test_calls_that_succeed_return():
    at_once(returning(), returning())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("error", [WorkerDied("by a signal"), ValueError("an unknown weight")])
def test_the_call_that_waits_is_ended_and_the_cause_is_raised(error, turned):
    sides = [failing(error), waiting()]
    with pytest.raises(type(error), match=str(error)):
        at_once(*(sides[::-1] if turned else sides), patience_seconds=MOMENT)


@pytest.mark.parametrize("turned", [False, True])
def test_a_death_that_is_noticed_after_the_broken_connection_is_the_cause(turned):
    sides = [failing(RuntimeError("connection reset")), failing(WorkerDied("by a signal"), after=4 * MOMENT)]
    with pytest.raises(WorkerDied, match="by a signal"):
        at_once(*(sides[::-1] if turned else sides), patience_seconds=LONG)


def test_workers_of_a_call_that_returned_are_not_ended():
    fine = Side(call=lambda: None, end=lambda: pytest.fail("it needs its workers no less than before"))
    with pytest.raises(ValueError, match="an unknown weight"):
        at_once(fine, failing(ValueError("an unknown weight"), after=MOMENT), patience_seconds=LONG)
