"""Laws of the order of rows: shares, coverage, no repeats in a batch, exact continuation."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rl_core.data.loader import PromptLoader
from rl_core.data.ordering import Arrangement, Shuffle
from tests.rl_core.builders import make_prompt

SHUFFLE = Shuffle(seed=1, enabled=True)


def arrangement(sizes, weights=None, levels=None):
    names = [name for name, size in sizes.items() for _ in range(size)]
    ranks = None if levels is None else np.array(levels, np.float64)
    return Arrangement(data_sources=names, source_weights=weights, ranks=ranks)


def epoch_of(arranged, *, batches, batch_size, epoch=0, shuffle=SHUFFLE):
    order = arranged.order(batches=batches, batch_size=batch_size, epoch=epoch, shuffle=shuffle)
    return order.reshape(batches, batch_size)


mixtures = st.fixed_dictionaries(
    {
        "sizes": st.dictionaries(st.sampled_from("abc"), st.integers(4, 30), min_size=1),
        "parts": st.lists(st.integers(1, 9), min_size=3, max_size=3),
        "batch_size": st.integers(1, 4),
        "epoch": st.integers(0, 4),
        "shuffled": st.booleans(),
    }
)


@settings(deadline=None)
@given(drawn=mixtures)
def test_every_batch_has_the_shares_of_the_weights_and_no_row_twice(drawn):
    sizes, batch_size = drawn["sizes"], drawn["batch_size"]
    weights = dict(zip(sorted(sizes), map(float, drawn["parts"]), strict=False))
    batches = sum(sizes.values()) // batch_size
    shuffle = Shuffle(seed=3, enabled=drawn["shuffled"])
    arranged = arrangement(sizes, weights)
    assume(batches > 0)
    order = epoch_of(arranged, batches=batches, batch_size=batch_size, epoch=drawn["epoch"], shuffle=shuffle)
    names = np.array(arranged.data_sources)
    for batch in order:
        assert len(set(batch.tolist())) == batch_size
        found = Counter(names[batch].tolist())
        for name, weight in weights.items():
            assert abs(found[name] - batch_size * weight / sum(weights.values())) < 2
    whole = Counter(names[order.ravel()].tolist())
    for name, weight in weights.items():
        assert abs(whole[name] - order.size * weight / sum(weights.values())) < 1


def test_a_source_drawn_more_often_than_it_has_rows_shows_each_equally_often():
    arranged = arrangement({"few": 4, "many": 36}, {"few": 1.0, "many": 1.0})
    shown = Counter(epoch_of(arranged, batches=10, batch_size=4).ravel().tolist())
    assert {shown[row] for row in range(4)} == {5}
    assert max(shown[row] for row in range(4, 40)) == 1


def test_a_source_drawn_less_often_goes_on_where_it_stopped():
    arranged = arrangement({"a": 20, "b": 60}, {"a": 3.0, "b": 1.0})
    epochs = [epoch_of(arranged, batches=10, batch_size=8, epoch=epoch).ravel() for epoch in range(3)]
    shown = [row for order in epochs for row in order.tolist() if row >= 20]
    assert sorted(shown) == list(range(20, 80)), "three epochs of 20 of its 60 rows show each once"


def test_a_source_too_small_for_its_share_is_named():
    arranged = arrangement({"few": 2, "many": 30}, {"few": 3.0, "many": 1.0})
    with pytest.raises(ValueError, match="asks 'few' for 3 of the 4 rows of a batch, and it has 2"):
        epoch_of(arranged, batches=8, batch_size=4)


def test_the_numbers_of_a_curriculum_rise_through_an_epoch():
    levels = [5, 1, 4, 1, 3, 2, 2, 5]
    order = epoch_of(arrangement({"a": 8}, levels=levels), batches=3, batch_size=2).ravel()
    found = [levels[row] for row in order]
    assert found == sorted(found)
    left_out = {row for epoch in range(20) for row in set(range(8)) - set(order_of(levels, epoch))}
    assert left_out == set(range(8)), "which rows fill no batch is drawn, or the hardest would never come"


def order_of(levels, epoch):
    return epoch_of(arrangement({"a": 8}, levels=levels), batches=3, batch_size=2, epoch=epoch).ravel().tolist()


def test_rows_of_equal_numbers_are_shuffled_in_every_epoch():
    orders = {tuple(order_of([1] * 4 + [2] * 4, epoch)) for epoch in range(5)}
    assert len(orders) == 5


def test_a_curriculum_holds_within_each_weighted_source():
    levels = [*range(20, 0, -1), *range(60)]
    arranged = arrangement({"a": 20, "b": 60}, {"a": 1.0, "b": 1.0}, levels)
    order = epoch_of(arranged, batches=5, batch_size=8).ravel()
    for rows in (order[order < 20], order[order >= 20]):
        found = [levels[row] for row in rows]
        assert found == sorted(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"weights": {"a": 1.0}}, {"weights": {"a": 2.0}}),
        ({"weights": {"a": 1.0}}, {}),
        ({"levels": [1, 2, 3, 4]}, {"levels": [1, 2, 4, 3]}),
        ({}, {"levels": [1, 2, 4, 3]}),
    ],
)
def test_places_in_different_orders_are_different(before, after):
    def loader(options):
        prompts = [make_prompt(str(number)) for number in range(4)]
        arranged = arrangement({"a": 4}, **options)
        return PromptLoader(prompts, batch_size=2, seed=1, shuffle=True, arrangement=arranged)

    assert loader(after).load_state_dict(loader(before).state_dict())
    assert loader(after).load_state_dict(loader(after).state_dict()) == []
