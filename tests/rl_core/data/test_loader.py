import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.data.loader import PromptLoader
from tests.rl_core.builders import make_prompt


def loader(rows=10, *, batch_size=3, seed=1, shuffle=True, content=""):
    prompts = [make_prompt(str(number)) for number in range(rows)]
    return PromptLoader(prompts, batch_size=batch_size, seed=seed, shuffle=shuffle, content=content)


def uids(batches):
    return [prompt.uid for batch in batches for prompt in batch]


@given(rows=st.integers(1, 30), batch_size=st.integers(1, 30), seed=st.integers(0, 5), taken=st.integers(0, 40))
def test_a_saved_place_continues_the_same_stream_from_anywhere(rows, batch_size, seed, taken):
    batch_size = min(batch_size, rows)
    first, second = (loader(rows, batch_size=batch_size, seed=seed) for _ in range(2))
    for _ in range(taken):
        first.next_batch()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.epoch == first.epoch == taken // first.batches_per_epoch
    for _ in range(2 * first.batches_per_epoch + 1):
        assert uids([second.next_batch()]) == uids([first.next_batch()])


@given(rows=st.integers(1, 40), batch_size=st.integers(1, 40), seed=st.integers(0, 5))
def test_every_epoch_shows_a_row_at_most_once_and_fills_every_batch(rows, batch_size, seed):
    batch_size = min(batch_size, rows)
    stream = loader(rows, batch_size=batch_size, seed=seed)
    for epoch in range(3):
        assert stream.epoch == epoch
        shown = uids(stream.next_batch() for _ in range(stream.batches_per_epoch))
        assert len(shown) == len(set(shown)) == rows - rows % batch_size


def test_epochs_and_seeds_have_orders_of_their_own():
    streams = [loader(50, batch_size=50, seed=seed) for seed in (1, 2)]
    orders = [tuple(uids([stream.next_batch()])) for stream in streams for _ in range(2)]
    assert len(set(orders)) == 4


def test_without_shuffling_rows_keep_their_order():
    stream = loader(4, batch_size=2, shuffle=False)
    assert uids(stream.next_batch() for _ in range(4)) == ["0", "1", "2", "3"] * 2


def test_the_order_is_that_of_earlier_versions():
    """A changed order would make runs incomparable, and resume wrongly."""
    assert uids([loader(8, batch_size=8).next_batch()]) == list("15260473")


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="a batch of 3 prompts is more than the 2 rows"):
        loader(2)


@given(
    before=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    now=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    taken=st.integers(0, 60),
)
def test_with_other_rows_or_batches_an_epoch_goes_on_after_the_number_of_prompts_it_has_had(before, now, taken):
    first, second = (loader(rows, batch_size=min(batch, rows)) for rows, batch in (before, now))
    for _ in range(taken):
        first.next_batch()
    had = taken % first.batches_per_epoch * min(before[::-1])
    differs = second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert bool(differs) == (first.state_dict() | {"epoch": 0} != second.state_dict() | {"epoch": 0})
    left = 0
    while second.epoch == first.epoch:
        second.next_batch()
        left += 1
    assert left == max(0, second.batches_per_epoch - -(-had // min(now[::-1])))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 11}, "the rows were 10 and are 11"),
        ({"batch_size": 2}, "the prompts of a batch were 3 and are 2"),
        ({"seed": 2}, "the seed changed"),
        ({"shuffle": False}, "data.shuffle changed"),
        ({"content": "other"}, "the content of the rows changed"),
    ],
)
def test_what_differs_from_a_saved_place_is_named(change, words):
    assert loader(**change).load_state_dict(loader().state_dict()) == [words]


def test_a_place_that_earlier_software_has_saved_without_the_content_is_taken_as_it_is():
    state = {name: value for name, value in loader().state_dict().items() if name != "content"}
    assert loader(content="any").load_state_dict(state) == []


def test_prompts_are_found_by_uid_wherever_the_loader_stands():
    stream = loader(5, batch_size=2)
    stream.next_batch()
    assert uids([stream.find({"3", "0", "gone"}).values()]) == ["0", "3"]
