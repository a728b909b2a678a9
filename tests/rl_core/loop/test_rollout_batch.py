"""Kept groups come back from a checkpoint equal to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.loop.rollout_batch import RolloutBatch, read_batch
from rl_core.types import Group, Rollout, RolloutKey, Score
from tests.rl_core.builders import facts_of, make_group, make_prompt, make_rollout

Kept = tuple[list[Group], dict[RolloutKey, Score]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


log_probs = st.lists(st.floats(-50.0, 0.0, width=32), min_size=1, max_size=5)


@st.composite
def rollouts(draw: st.DrawFn, uid: str, index: int) -> Rollout:
    drawn = np.array(draw(log_probs), dtype=np.float32)
    version, text = draw(st.integers(0, 9)), draw(st.text(st.characters(codec="utf-8")))
    rollout = make_rollout(uid, index, length=len(drawn), version=version)
    return replace(rollout, log_probs=drawn, text=text, finish_reason=draw(st.sampled_from(["stop", "length"])))


@st.composite
def surpluses(draw: st.DrawFn) -> RolloutBatch:
    groups = [
        Group(
            prompt=make_prompt(uid),
            rollouts=[draw(rollouts(uid, i)) for i in sorted(draw(st.sets(st.integers(0, 5), min_size=1)))],
        )
        for uid in draw(st.lists(st.sampled_from("abc"), unique=True))
    ]
    numbers = st.dictionaries(st.sampled_from(["overall", "format"]), st.floats(-2.0, 2.0))
    scores = {
        rollout.key: Score(components=draw(numbers), parsed=draw(st.sampled_from(["3", None])))
        for group in groups
        for rollout in group.rollouts
    }
    return RolloutBatch(groups=groups, scores=scores)


def plain(surplus: RolloutBatch) -> list[list[object]]:
    return [[(facts_of(r), surplus.scores[r.key]) for r in group.rollouts] for group in surplus.groups]


@given(surplus=surpluses())
def test_kept_groups_come_back_equal_to_the_bit(folder, surplus):
    surplus.write(folder / "surplus.parquet", step=3)
    found = read_batch(folder / "surplus.parquet", lambda uids: {uid: make_prompt(uid) for uid in uids})
    assert plain(found) == plain(surplus)
    assert found.scores.keys() == surplus.scores.keys()


def test_a_prompt_that_comes_round_again_drops_its_group_and_its_scores():
    groups = [make_group(uid) for uid in ("a", "b")]
    kept = RolloutBatch.of(groups, {r.key: Score(components={"overall": 1.0}) for g in groups for r in g.rollouts})
    left = kept.without([make_prompt("a"), make_prompt("c")])
    assert left.groups == groups[1:]
    assert left.scores.keys() == {("b", 0), ("b", 1)}
