"""Each step is in one epoch, however often rows and batches change on the way."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.planning.epoch_spans import START, EpochSpans

parts = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=4)


@given(parts=parts)
def test_epochs_follow_one_another_whatever_changes(parts: list[tuple[int, int, int]]) -> None:
    """`parts` are steps of an epoch, prompts of a step, and how many steps are trained so."""
    step, place = 0, START
    for steps, batch, trained in parts:
        spans = EpochSpans(steps=steps, batch=batch, since=place)
        assert spans.place(step) == place
        reached = spans.epoch_of(step)
        for epoch in range(max(1, reached), reached + 4):
            assert spans.end(epoch) >= step and not spans.has_passed(epoch)
            assert spans.first(epoch + 1) == spans.end(epoch) + 1
            inside = range(max(step + 1, spans.first(epoch)), spans.end(epoch) + 1)
            assert {spans.epoch_of(each) for each in inside} <= {epoch}
        step += trained
        place = spans.place(step)
        assert place.first <= max(1, step)


@given(steps=st.integers(1, 9), batch=st.integers(1, 5), step=st.integers(0, 40), epoch=st.integers(1, 9))
def test_a_place_changes_nothing_where_rows_and_batches_are_the_same(
    steps: int, batch: int, step: int, epoch: int
) -> None:
    before = EpochSpans(steps=steps, batch=batch)
    after = EpochSpans(steps=steps, batch=batch, since=before.place(step))
    assert (after.end(epoch), after.epoch_of(step + epoch)) == (before.end(epoch), before.epoch_of(step + epoch))
    assert after.has_passed(epoch) or after.first(epoch) == before.first(epoch)
