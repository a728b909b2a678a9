"""What vLLM computes on a CPU of images whose tokens see each other."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rollout.cpu.image_blocks import Part, check_lengths, image_parts

REQUESTS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 12), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)))),
    min_size=1,
    max_size=4,
)
"""Of each: tokens in the cache, tokens that are computed, and images by the tokens before them and their own."""


@given(REQUESTS)
def test_every_computed_token_of_an_image_sees_all_that_is_there_of_it(requests):
    starts, images = [0], {}
    for number, (_, computed, parts) in enumerate(requests):
        starts.append(starts[-1] + computed)
        at, images[number] = 0, []
        for gap, length in parts:
            images[number].append((at + gap, at + gap + length - 1))
            at += gap + length
    common = SimpleNamespace(
        query_start_loc_cpu=torch.tensor(starts),
        seq_lens=torch.tensor([cached + computed for cached, computed, _ in requests]),
        mm_req_doc_ranges=images,
    )
    seen = {row: (part.request, part.seen) for part in image_parts(common) for row in part.rows}
    expected = {
        starts[number] + place - cached: (number, min(last + 1, cached + computed))
        for number, (cached, computed, _) in enumerate(requests)
        for place in range(cached, cached + computed)
        for first, last in images[number]
        if first <= place <= last
    }
    assert seen == expected


def test_an_image_that_is_longer_than_the_window_is_refused():
    parts = [Part(range(3, 9), request=0, seen=9), Part(range(20, 22), request=1, seen=5)]
    for window in (-1, 6, 7):
        check_lengths(parts, window=window)
    check_lengths([], window=0)
    with pytest.raises(ValueError, match="an image has 6 tokens that see each other, more than the 5 of a layer"):
        check_lengths(parts, window=5)
