"""The index tensors of a packed sequence, against layouts written down by hand and as laws."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.models.cpu.slots import shared_prompts
from rl_core.models.tree_layout import TreeLayout, TreeSpans, ranges

CPU = torch.device("cpu")

shapes = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=4)), min_size=1, max_size=4
)


def layout_of(trees: list[tuple[int, list[int]]]) -> TreeLayout:
    return TreeLayout(TreeSpans([prompt for prompt, _ in trees], [inputs for _, inputs in trees]), device=CPU)


def test_ranges_join_runs() -> None:
    assert ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]


def test_two_trees_lie_as_their_docstring_says() -> None:
    spans = TreeSpans([3, 2], [[2, 0, 1], [2]])
    assert spans.prompt_starts.tolist() == [0, 6]
    assert spans.prompt_ends.tolist() == [3, 8]
    assert spans.response_starts.tolist() == [3, 5, 5, 8]
    assert spans.response_prompt.tolist() == [0, 0, 0, 1]
    assert spans.num_tokens == 10
    padded = layout_of([(3, [2, 0, 1]), (2, [2])]).padded
    assert padded.slot_tokens.tolist() == [0, 1, 2, 6, 7, 0, 3, 4, 5, 0, 8, 9]
    assert padded.token_slot.tolist() == [0, 1, 2, 6, 7, 8, 3, 4, 10, 11]
    assert padded.prompt_copies.rows.tolist() == [0, 0, 1]
    assert padded.response_mask[0, 0].int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert padded.response_mask[2, 0].int().tolist() == [[1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]


def test_a_run_of_keys_is_the_prompt_and_then_the_response() -> None:
    ragged = layout_of([(3, [2, 0, 1]), (2, [2])]).ragged
    assert ragged.key_copies.rows.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7, 8, 9]
    assert ragged.key_bounds.tolist() == [0, 5, 9, 13]
    assert ragged.response_bounds.tolist() == [0, 2, 3, 5]
    assert ragged.prompt_bounds.tolist() == [0, 3, 5]


@settings(deadline=None)
@given(trees=shapes)
def test_every_token_has_one_slot_and_every_row_of_the_mask_sees_something(trees: list[tuple[int, list[int]]]) -> None:
    layout = layout_of(trees)
    padded = layout.padded
    num_tokens = sum(prompt + sum(inputs) for prompt, inputs in trees)
    assert padded.slot_tokens[padded.token_slot].tolist() == list(range(num_tokens))
    assert padded.response_mask.any(-1).all()


def test_prompts_share_a_width_and_so_many_rows_of_responses() -> None:
    shared = shared_prompts(layout_of([(3, [2, 0, 1]), (2, [2])]))
    assert (shared.prompt_shape, shared.response_shape) == ((2, 3), (4, 2))
    assert shared.slot_tokens.tolist() == [0, 1, 2, 6, 7, 0, 3, 4, 5, 0, 8, 9, 0, 0]
    assert shared.unused_slots.tolist() == [5, 9, 12, 13]
    assert shared.token_slot.tolist() == [0, 1, 2, 6, 7, 8, 3, 4, 10, 11]
    assert shared.prompt_mask is not None
    assert shared.prompt_mask[:, 0, 0].isinf().tolist() == [[False] * 3, [False, False, True]]
    assert shared_prompts(layout_of([(3, [2]), (3, [1])])).prompt_mask is None


@settings(deadline=None)
@given(trees=shapes)
def test_every_token_has_one_shared_slot_and_all_others_are_unused(trees: list[tuple[int, list[int]]]) -> None:
    shared = shared_prompts(layout_of(trees))
    used = shared.token_slot.tolist()
    assert shared.slot_tokens[shared.token_slot].tolist() == list(range(len(used)))
    assert sorted(used + shared.unused_slots.tolist()) == list(range(len(shared.slot_tokens)))


@settings(deadline=None)
@given(trees=shapes)
def test_every_token_has_one_place_in_the_runs(trees: list[tuple[int, list[int]]]) -> None:
    ragged = layout_of(trees).ragged
    assert ragged.slot_tokens[ragged.token_slot].tolist() == list(range(len(ragged.slot_tokens)))
    assert ragged.prompt_bounds[-1] == ragged.num_prompt_tokens
    assert ragged.key_bounds[-1] == len(ragged.key_copies.rows)
