"""What was computed is only counted; what is shown of it is looked up every second."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from rl_core.progress import Now, Reached, Tally, showing

COUNTS = st.builds(Tally, *[st.integers(0, 9)] * 4)


@given(st.lists(COUNTS), COUNTS)
def test_tallies_of_parts_add_up_to_the_whole(parts, before):
    now = before.copy()
    for part in parts:
        now.add(part)
    found = Tally()
    for part in parts:
        found.add(part)
    assert now.since(before) == found


def test_a_unit_that_is_done_takes_the_place_of_what_was_done_of_it():
    reached = Reached()
    reached.advance(0, "", Now("step 1: update", 0.75))
    assert (reached.done, reached.units) == (0, 0.75)
    reached.advance(1, "reward 0.4", None)
    assert (reached.done, reached.units, reached.figures) == (1, 1.0, "reward 0.4")
    reached.advance(0, "", Now("150 tokens", 2.5))
    reached.advance(1, "", None)
    assert (reached.done, reached.units, reached.figures) == (2, 3.5, "reward 0.4")
    assert reached.now.words == "150 tokens", "until something else is said"


def test_the_current_activity_is_polled_until_the_end(monkeypatch):
    monkeypatch.setattr("rl_core.progress._SECONDS_BETWEEN_LOOKS", 0.001)
    shown = []
    third = threading.Event()

    def advance(count=1, figures="", now=None):
        shown.append((count, now))
        if len(shown) == 3:
            third.set()

    with showing(advance, lambda: Now("busy")):
        assert third.wait(30)
    there = len(shown)
    assert shown == [(0, Now("busy"))] * there
    assert not any(thread.name == "progress" for thread in threading.enumerate())
