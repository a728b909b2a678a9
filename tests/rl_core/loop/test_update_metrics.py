"""The means of an update: the same whoever computed which group, in whatever order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.loop.update_metrics import token_means
from rl_core.training.batches import TokenSums

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
groups = st.lists(st.tuples(numbers, numbers, st.floats(1e-6, 1.0)), min_size=1, max_size=30)


def part(chosen: list[tuple[float, float, float]]) -> TokenSums:
    return TokenSums(
        sums={"actor/pg_loss": [one for one, _, _ in chosen], "actor/entropy": [two for _, two, _ in chosen]},
        weights=[weight for _, _, weight in chosen],
    )


@given(drawn=groups, data=st.data())
def test_neither_order_nor_cut_changes_a_mean(drawn: list[tuple[float, float, float]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(drawn))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(drawn)), max_size=4)))
    pieces = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(drawn)], strict=True)]
    assert token_means(part(piece) for piece in pieces) == token_means([part(drawn)])


def test_a_mean_is_weighted_as_the_loss_is() -> None:
    means = token_means([TokenSums(sums={"a": [0.5, 0.75]}, weights=[0.5, 0.25])])
    assert means == {"a": pytest.approx(1.25 / 0.75)}


def test_a_step_that_diverges_has_a_mean_that_is_no_number() -> None:
    means = token_means([TokenSums(sums={"a": [math.inf, -math.inf], "b": [math.inf, 1.0]}, weights=[0.5, 0.5])])
    assert math.isnan(means["a"]) and means["b"] == math.inf
