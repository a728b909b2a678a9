"""Rollouts are taken once, in the generation that made them; a generation that is not wanted any more ends."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from rl_core.workers.outbox import Outbox
from tests.rl_core.builders import make_rollout


@given(sizes=st.lists(st.integers(0, 4), max_size=4))
def test_every_rollout_is_taken_once_and_the_end_is_told(sizes):
    """However many are put in between two looks."""
    outbox, found, made = Outbox(gathering_seconds=0.0), [], 0
    outbox.begin(1)
    for size in sizes:
        for _ in range(size):
            assert outbox.put(make_rollout("p", made))
            made += 1
        if size:
            taken = outbox.take(1)
            assert not taken.is_last
            found += taken.rollouts
    outbox.end()
    last = outbox.take(1)
    assert last.is_last
    assert [rollout.sample_index for rollout in [*found, *last.rollouts]] == list(range(made))


def test_who_asks_before_the_generation_begins_waits_for_its_rollouts():
    outbox, taken = Outbox(), []
    outbox.begin(1)
    outbox.end()
    asking = threading.Thread(target=lambda: taken.append(outbox.take(2)))
    asking.start()
    asking.join(0.05)
    assert not taken, "the end of another generation is not its end"
    outbox.begin(2)
    outbox.put(make_rollout("p", 7))
    asking.join(5.0)
    assert [rollout.sample_index for rollout in taken[0].rollouts] == [7]


def test_rollouts_that_come_soon_after_each_other_are_taken_together_and_the_end_is_not_waited_for():
    outbox, taken = Outbox(gathering_seconds=60.0), []
    asking = threading.Thread(target=lambda: taken.append(outbox.take(1)))
    asking.start()
    outbox.begin(1)
    for index in range(3):
        outbox.put(make_rollout("p", index))
        asking.join(0.02)
    assert not taken
    outbox.end()
    asking.join(5.0)
    assert [rollout.sample_index for rollout in taken[0].rollouts] == [0, 1, 2] and taken[0].is_last


def test_a_stop_ends_this_generation_even_before_it_begins_and_not_the_next_one():
    outbox = Outbox()
    outbox.stop(1)
    outbox.begin(1)
    assert not outbox.put(make_rollout())
    outbox.end()
    outbox.begin(2)
    assert outbox.put(make_rollout())
