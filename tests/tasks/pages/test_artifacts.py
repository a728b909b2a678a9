"""How far, and how long still."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.progress import SilentProgress
from tasks.pages.artifacts import Eta, FlowProgress


def test_the_rest_takes_as_long_as_the_units_so_far() -> None:
    eta = Eta(10)
    for number in range(5):
        eta.advance(1, now=100.0 + 2 * number)
    assert str(eta) == "5 of 10, 10 s left"
    assert eta.percent == 50.0


def test_what_an_earlier_process_did_says_nothing_of_the_pace() -> None:
    eta = Eta(100)
    eta.advance(90, now=0.0)
    assert str(eta) == "90 of 100"
    eta.advance(1, now=3.0)
    assert str(eta) == "91 of 100, 27 s left"


def test_work_of_which_nobody_knows_how_much_there_is_is_counted() -> None:
    eta = Eta(None)
    for number in range(3):
        eta.advance(1, now=float(number))
    assert (str(eta), eta.percent, eta.is_finished) == ("3", 0.0, False)


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(1, 50))
def test_the_share_stays_between_0_and_100(counts: list[int], total: int) -> None:
    eta = Eta(total)
    for now, count in enumerate(counts):
        eta.advance(count, now=float(now))
    assert 0.0 <= eta.percent <= 100.0
    assert eta.percent == pytest.approx(100 * min(sum(counts), total) / total)


def test_what_is_waited_for_is_shown_and_written_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
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
    assert shown.open == [] and caplog.messages[1].startswith("start the engine: ")
