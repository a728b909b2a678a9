"""A response with what an environment has put into it is kept to the bit in each of the files that hold responses."""

import tempfile
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rl_core.checkpoints.probe import build_probe, read_probe, write_probe
from rl_core.data.pixels import encode_png
from rl_core.evaluation.response_file import ResponseFile
from rl_core.export.merged_check import read_items, sampled_places, whole_response
from rl_core.image_sizes import ImageSizes
from rl_core.loop.rollout_batch import RolloutBatch, read_batch
from rl_core.models.packing import Branch
from rl_core.types import EnvironmentOpening, GenerationRequest, Group, Insertion, Rollout, Sampling, Score, ToolCall
from tests.rl_core.builders import make_prompt, make_rollout

PNG = encode_png(Image.new("RGB", (1, 1)))
IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4).map(lambda ids: np.array(ids, np.int32))
CALLS = st.builds(
    ToolCall,
    name=st.text(max_size=3),
    arguments=st.text(max_size=5),
    result=st.text(max_size=5),
    outcome=st.sampled_from(["answered", "invalid", "failed"]),
)


SIZES = st.tuples(st.integers(1, 99), st.integers(1, 99))


@st.composite
def openings(draw: st.DrawFn) -> EnvironmentOpening:
    images = draw(st.lists(st.sampled_from(["one", "made-two"]), max_size=2))
    return EnvironmentOpening(
        text=draw(st.text(max_size=4)),
        token_ids=draw(IDS),
        engine_token_ids=draw(IDS),
        tail_letters=1,
        tail_tokens=draw(st.integers(1, len(make_prompt("a").engine_token_ids))),
        image_uids=tuple(images),
        image_sizes=tuple(ImageSizes(original=draw(SIZES), shown=draw(SIZES)) for _ in images),
        call=draw(CALLS),
    )


@st.composite
def conversations(draw: st.DrawFn) -> Rollout:
    """A response of up to nine sampled tokens, with insertions between some of them."""
    length = draw(st.integers(2, 9))
    places = sorted(draw(st.sets(st.integers(1, length - 1), max_size=3)))
    insertions = tuple(
        Insertion(
            after=place,
            token_ids=draw(IDS),
            engine_token_ids=draw(IDS),
            turn=draw(st.text(max_size=4)),
            image_uids=tuple(draw(st.lists(st.sampled_from(["one", "crop-one-0-0-2-2-28x28"]), max_size=2))),
            calls=tuple(draw(st.lists(CALLS, max_size=2))),
        )
        for place in places
    )
    return replace(
        make_rollout("a", 0),
        response_ids=np.arange(length, dtype=np.int32),
        log_probs=np.linspace(-1, 0, length, dtype=np.float32),
        insertions=insertions,
        environment=draw(st.dictionaries(st.text(max_size=3), st.floats(-9, 9), max_size=2)),
        opening=draw(st.none() | openings()),
    )


def value(one: Any) -> Any:
    """Comparable: an array as a list with its type."""
    return (one.dtype, one.tolist()) if isinstance(one, np.ndarray) else one


def shown(opening: EnvironmentOpening | None) -> list[Any] | None:
    return None if opening is None else [value(getattr(opening, one.name)) for one in fields(opening)]


def plain(rollout: Rollout) -> list[Any]:
    """Comparable values."""
    return [[[value(part) for part in astuple(put)] for put in rollout.insertions], value(rollout.response_ids)]


@given(rollout=conversations())
@settings(max_examples=40, deadline=None)
def test_a_conversation_is_read_back_to_the_bit(rollout: Rollout) -> None:
    prompt = make_prompt("a")
    group = Group.of(prompt, [rollout])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = RolloutBatch(groups=[group], scores={rollout.key: Score(components={"overall": 1.0})})
        batch.write(folder / "step", step=1)
        (read,) = read_batch(folder / "step", lambda uids: {"a": prompt}).groups
        (recorded,) = read.rollouts
        request = GenerationRequest(prompt=prompt, sample_index=0, seed=3)
        sampling = Sampling(temperature=1.0, max_tokens=9)
        list(ResponseFile(folder / "kept", key="k").around(lambda *_: iter([rollout]))([request], sampling))
        (kept,) = ResponseFile(folder / "kept", key="k").around(lambda *_: iter(()))([request], sampling)
        probe = build_probe(
            [group], [[rollout.log_probs]], dtype="float32", device="cpu", encoded_image=lambda uid: PNG,
            video_positions=lambda prompt: np.zeros(0, np.int64),
        )  # fmt: skip
        write_probe(folder / "probe", probe)
        (probed_group,) = read_probe(folder / "probe").groups
        (probed,) = probed_group.rollouts
        ((item,), _) = read_items(folder / "probe")
    assert recorded.environment == kept.environment == rollout.environment
    assert shown(recorded.opening) == shown(kept.opening) == shown(rollout.opening)
    ids = [value(one.prompt.token_ids) for one in (group, read, probed_group)]
    assert ids == [value(prompt.opened(rollout.opening).token_ids)] * 3
    assert read.prompt.image_uids == prompt.opened(rollout.opening).image_uids
    assert plain(recorded) == plain(kept) == plain(probed) == plain(rollout)
    branch = Branch.of(rollout.response_ids, rollout.insertions)
    assert whole_response(item) == branch.token_ids.tolist()
    assert sampled_places(item) == branch.places.tolist()
    assert len(branch.token_ids) == rollout.num_tokens
    assert len(branch.image_uids) == len(rollout.image_uids)
    assert len(item["images"]) == len(group.prompt.image_uids) + len(rollout.image_uids)
