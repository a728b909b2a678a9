"""Moving rows: the values of plain indexing, the gradients of plain indexing, and those the same in every run."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.models.row_moves import Copies, copy_rows, pad, unpad
from tests.rl_core.busy import busy_cores, threads_of_torch

CPU = torch.device("cpu")


@st.composite
def slots_of_rows(draw: st.DrawFn) -> tuple[list[int], int]:
    """The slot of each row, no slot twice, and the number of slots."""
    num_slots = draw(st.integers(1, 12))
    return draw(st.lists(st.integers(0, num_slots - 1), min_size=1, unique=True)), num_slots


@given(drawn=slots_of_rows())
def test_rows_come_back_from_their_slots_with_their_gradient(drawn):
    slots, num_slots = drawn
    row_slot = torch.tensor(slots)
    slot_rows = torch.zeros(num_slots, dtype=torch.int64)
    slot_rows[row_slot] = torch.arange(len(slots))
    rows = torch.randn(len(slots), 2, 3, dtype=torch.float64, requires_grad=True)
    padded = pad(rows, slot_rows=slot_rows, row_slot=row_slot)
    assert torch.equal(padded, rows[slot_rows])
    assert torch.equal(unpad(padded, row_slot=row_slot), rows)
    used = torch.zeros(num_slots, 1, 1, dtype=torch.float64)
    used[row_slot] = 1.0

    def through_slots(tensor):
        return unpad(pad(tensor, slot_rows=slot_rows, row_slot=row_slot) * used, row_slot=row_slot)

    assert torch.autograd.gradcheck(through_slots, rows)


@given(owners=st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_copies_have_the_values_and_the_gradient_of_indexing(owners):
    copies = Copies.of(np.array(owners, np.int64), device=CPU)
    rows = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(len(owners), 2, dtype=torch.float64)
    copied = copy_rows(rows, copies)
    assert torch.equal(copied, rows[copies.rows])
    (found,) = torch.autograd.grad((copied * weight).sum(), rows)
    (expected,) = torch.autograd.grad((rows[copies.rows] * weight).sum(), rows)
    torch.testing.assert_close(found, expected)
    assert all(len(set(round_rows.tolist())) == len(round_rows) for round_rows, _ in copies.rounds)
    assert sorted(place for _, places in copies.rounds for place in places.tolist()) == list(range(len(owners)))


@pytest.fixture
def shared_keys() -> tuple[torch.Tensor, torch.Tensor, Copies]:
    """Keys of 125 prompts of 24 tokens and what flows back to them from 8 or 7 responses each: [3000, 2, 32]."""
    owners = np.repeat(np.arange(125), [8 if prompt % 3 else 7 for prompt in range(125)])
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(125, 24, 2, 32, generator=generator, requires_grad=True)
    weight = torch.randn(len(owners), 24, 2, 32, generator=generator)
    return keys, weight, Copies.of(owners, device=CPU)


def gradients(copy, keys: torch.Tensor, weight: torch.Tensor, *, repeats: int = 60) -> set[bytes]:
    return {torch.autograd.grad((copy(keys) * weight).sum(), keys)[0].numpy().tobytes() for _ in range(repeats)}


@pytest.mark.parametrize("threads", [2, 8])
def test_shared_keys_have_one_gradient_on_a_busy_machine(shared_keys, threads):
    keys, weight, copies = shared_keys
    with threads_of_torch(threads), busy_cores():
        assert len(gradients(lambda tensor: copy_rows(tensor, copies), keys, weight)) == 1


def test_plain_indexing_has_several_there(shared_keys):
    """The control: without it the test above would show nothing."""
    keys, weight, copies = shared_keys
    with threads_of_torch(8), busy_cores():
        assert len(gradients(lambda tensor: tensor[copies.rows], keys, weight)) > 1
