"""Fillers make the passes of all ranks equal in number and in what they show."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rl_core.distributed.ranks import LONE
from rl_core.models.packing import TreeInput
from rl_core.training.equal_passes import Media, equal_passes, fillers, media_of
from rl_core.types import VideoClip
from tests.rl_core.builders import make_group, make_prompt

MEDIA = st.frozensets(st.sampled_from(["image", "video"]))
SHOWN = st.lists(MEDIA, max_size=4)
"""What the micro-batches of a rank show; each has one tree."""


def tree_that_shows(media: Media) -> TreeInput:
    prompt = make_prompt(f"{sorted(media)}", length=1 + len(media))
    prompt = replace(
        prompt,
        image_uids=("one",) if "image" in media else (),
        videos=(VideoClip(frame_uids=("a", "b"), fps=1.0),) if "video" in media else (),
    )
    return TreeInput(prompt=prompt, responses=[np.zeros(1, np.int32)])


@given(ranks=st.lists(SHOWN, min_size=1, max_size=4))
def test_every_pass_shows_the_same_on_all_ranks(ranks):
    candidates = {media: tree_that_shows(media) for own in ranks for media in own}
    for number in range(max(map(len, ranks))):
        shown = [own[number] if number < len(own) else None for own in ranks]
        wanted = frozenset[str]().union(*(media for media in shown if media is not None))
        for own in shown:
            chosen = fillers(own, wanted, candidates)
            assert own is not None or chosen, "a pass without a tree"
            assert (own or frozenset()).union(*(media_of(tree) for tree in chosen)) == wanted
            if own == wanted:
                assert not chosen, "a filler that nobody needs"


def test_a_rank_that_is_alone_computes_its_micro_batches_as_they_are():
    microbatches = [[make_group("a"), make_group("b")], [make_group("c", lengths=(2,))]]
    passes = list(equal_passes(microbatches, LONE))
    assert [one.groups for one in passes] == microbatches
    assert not any(one.fillers for one in passes)
    assert [one.num_tokens for one in passes] == [8, 2]
    assert [len(one.trees) for one in passes] == [2, 1]
