import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.aggregation import BatchTotals, token_weights

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@pytest.mark.parametrize("mode", ["token", "seq"])
@given(lengths=LENGTHS)
def test_the_weights_of_a_whole_batch_sum_to_one(mode, lengths):
    totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=9)
    assert float(token_weights(lengths, mode=mode, totals=totals).sum()) == pytest.approx(1.0, abs=1e-5)


@given(lengths=LENGTHS)
def test_with_a_constant_length_every_token_of_any_response_counts_the_same(lengths):
    totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=9)
    weights = token_weights(lengths, mode="seq_sum_norm", totals=totals)
    assert weights.tolist() == pytest.approx([1.0 / (9 * len(lengths))] * sum(lengths))


def test_a_mean_of_micro_batch_means_would_differ():
    """The control: the naive aggregation that the required denominator rules out."""
    losses = [torch.tensor([4.0]), torch.zeros(3)]
    totals = BatchTotals(tokens=4, sequences=2, longest_response=3)
    right = sum(float(token_weights([len(loss)], mode="token", totals=totals) @ loss) for loss in losses)
    assert right == pytest.approx(1.0)
    assert sum(float(loss.mean()) for loss in losses) / 2 == pytest.approx(2.0)
