"""How far, and how long still."""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.progress import Now, Reached, SilentProgress
from tasks.pages.artifacts import Eta, FlowProgress


def test_the_rest_takes_as_long_as_the_units_so_far() -> None:
    eta = Eta(10)
    for number in range(5):
        eta.reach(Reached(number + 1), at=100.0 + 2 * number)
    assert str(eta) == "5 of 10, 10 s left"
    assert eta.percent == 50.0


def test_the_pace_does_not_count_the_work_of_an_earlier_process() -> None:
    eta = Eta(100)
    eta.reach(Reached(90), at=0.0)
    assert str(eta) == "90 of 100"
    eta.reach(Reached(91), at=3.0)
    assert str(eta) == "91 of 100, 27 s left"


def test_work_of_which_nobody_knows_how_much_there_is_is_counted() -> None:
    eta = Eta(None)
    for number in range(3):
        eta.reach(Reached(number + 1), at=float(number))
    assert (str(eta), eta.percent, eta.is_finished) == ("3", 0.0, False)


def test_unfinished_work_counts_by_the_part_that_is_done() -> None:
    """Responses that are all generated at the same time end only at the end."""
    eta = Eta(300)
    eta.reach(Reached(), at=0.0)
    eta.reach(Reached(1, now=Now(units=59.0)), at=60.0)
    assert (str(eta), eta.percent) == ("1 of 300, 4 min 00 s left", 20.0)


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(1, 50))
def test_the_share_stays_between_0_and_100(counts: list[int], total: int) -> None:
    eta = Eta(total)
    reached = Reached()
    for now, count in enumerate(counts):
        reached.advance(count, "", None)
        eta.reach(reached, at=float(now))
    assert 0.0 <= eta.percent <= 100.0
    assert eta.percent == pytest.approx(100 * min(sum(counts), total) / total)


def test_waits_are_shown_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Recorder(SilentProgress):
        open: list[str] = []

        @contextmanager
        def wait(self, description: str) -> Iterator[None]:
            self.open.append(description)
            yield
            self.open.remove(description)

    shown = Recorder()
    with (
        caplog.at_level(logging.INFO, logger="tasks.pages.artifacts"),
        FlowProgress(shown).wait("start the engine"),
    ):
        assert shown.open == ["start the engine"]
        assert caplog.messages == ["start the engine ..."]
    assert shown.open == [] and caplog.messages == ["start the engine ..."], "a wait of a moment has no second line"
    with caplog.at_level(logging.INFO, logger="tasks.pages.artifacts"), FlowProgress(shown).wait("load the model"):
        time.sleep(1.0)
    assert caplog.messages[-1] == "load the model: 1.0 s"


def test_the_current_activity_is_the_innermost_open_bar() -> None:
    progress = FlowProgress(SilentProgress())
    assert progress.doing() == ""
    with progress.bar("train epoch 1", 3) as advance:
        advance(1, "reward 0.4")
        assert progress.doing() == "train epoch 1: 1 of 3"
        advance(0, now=Now("step 2: update, 40 s left", 0.5))
        assert progress.doing() == "train epoch 1: 1 of 3, step 2: update, 40 s left"
        with progress.wait("start the engine"):
            assert re.fullmatch("start the engine, .+ so far", progress.doing())
        assert progress.doing() == "train epoch 1: 1 of 3, step 2: update, 40 s left"
        with progress.wait("start the engine"):
            assert re.fullmatch("start the engine, .+ so far, last time .+ ms", progress.doing())
    assert progress.doing() == ""
