"""The probe is exact, plain files, and says what every implementation can be asked for."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rl_core.checkpoints.probe import Probe, differences, plain_distribution, read_probe, write_probe
from rl_core.distributed.ranks import TOPOLOGY_ALONE
from rl_core.export.merged_check import read_items
from rl_core.types import Group, VideoClip
from tests.rl_core.builders import made_up_rollout, make_prompt

ids = arrays(np.int32, st.integers(1, 5), elements=st.integers(0, 2**31 - 1))
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    token_ids=ids,
    log_probs=arrays(np.float32, st.integers(1, 6), elements=float32),
    topology=st.sampled_from([TOPOLOGY_ALONE, "2 workers"]),
)
@settings(max_examples=40, deadline=None)
def test_a_probe_is_read_back_to_the_bit(token_ids, log_probs, topology):
    prompt = replace(
        make_prompt("a"),
        token_ids=token_ids,
        engine_token_ids=token_ids[:1],
        image_uids=("one", "two", "one"),
        videos=(VideoClip(frame_uids=("two", "one"), fps=0.7),),
    )
    rollout = made_up_rollout("a", 3, np.arange(len(log_probs), dtype=np.int32), log_probs)
    probe = Probe(
        dtype="bfloat16",
        device="NVIDIA H200",
        topology=topology,
        groups=[Group(prompt=prompt, rollouts=[rollout])],
        positions={"a": np.arange(6).reshape(3, 2)},
        images={"one": b"\x89PNG...", "two": b"\xff\xd8 a JPEG"},
    )
    with tempfile.TemporaryDirectory() as folder:
        write_probe(Path(folder), probe)
        read = read_probe(Path(folder))
        assert sorted(path.name for path in Path(folder).iterdir()) == ["one.png", "probe.json", "two.jpg"]
    assert (read.dtype, read.images, read.topology) == (probe.dtype, probe.images, topology)
    (group,) = read.groups
    for written, found in (
        (token_ids, group.prompt.token_ids),
        (token_ids[:1], group.prompt.engine_token_ids),
        (rollout.response_ids, group.rollouts[0].response_ids),
        (log_probs, group.rollouts[0].log_probs),
        (probe.positions["a"], read.positions["a"]),
    ):
        assert found.dtype == written.dtype
        assert found.tobytes() == written.tobytes()
    assert (group.prompt.image_uids, group.prompt.videos) == (prompt.image_uids, prompt.videos)
    assert group.rollouts[0].key == rollout.key
    assert not differences(read, [log_probs]).any()


def test_differences_are_found_and_nan_is_never_equal(merged):
    probe = merged("qwen2_5").probe
    log_probs = [rollout.log_probs.copy() for rollout in probe.rollouts]
    log_probs[1][-1] += 0.25
    assert differences(probe, log_probs).max() == pytest.approx(0.25)
    log_probs[0][0] = np.nan
    assert np.isnan(differences(probe, log_probs).mean())


def test_the_ban_is_back_after_the_block_whatever_happened_in_it(merged):
    bench = merged("qwen2_5").bench
    before = bench.policy.logit_bias.clone()
    assert before.any()
    with pytest.raises(RuntimeError), plain_distribution(bench.policy):
        raise RuntimeError(f"{bench.policy.logit_bias.any()}")
    assert bench.policy.logit_bias.equal(before)


def test_a_probe_that_names_an_image_elsewhere_is_refused(tmp_path):
    folder = tmp_path / "probe"
    folder.mkdir()
    (tmp_path / "private.png").write_bytes(b"private")
    item = {
        "name": "a/0",
        "token_ids": [1],
        "engine_token_ids": [1],
        "response_ids": [2],
        "log_probs": [-1.0],
        "videos": [],
        "insertions": [],
    }
    for name in ("../private.png", str(tmp_path / "private.png")):
        (folder / "probe.json").write_text(json.dumps({"dtype": "float32", "items": [item | {"images": [name]}]}))
        with pytest.raises(ValueError, match="does not name a file below"):
            read_probe(folder)
        with pytest.raises(ValueError, match="images that are not in it"):
            read_items(folder)
