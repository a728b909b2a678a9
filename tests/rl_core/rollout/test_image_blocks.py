"""What vLLM computes on a CPU of images whose tokens see each other."""

from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rollout.cpu.image_blocks import image_parts

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
