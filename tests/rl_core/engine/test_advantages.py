import numpy as np
import pytest

from rl_core.engine.advantages import assign_advantages, scored_groups
from rl_core.types import Score
from tests.rl_core.builders import make_group

GOOD, BAD = Score(components={"overall": 1.0}), Score(components={}, error="timeout")
ZERO = Score(components={"overall": 0.0})


def test_a_rollout_without_a_score_leaves_its_groups_statistics() -> None:
    group = make_group(lengths=(2, 2, 2))
    scores = {("p0", 0): GOOD, ("p0", 1): BAD, ("p0", 2): ZERO}
    kept = scored_groups([group], scores)
    old = [[rollout.log_probs for rollout in kept[0].rollouts]]
    (train,) = assign_advantages(kept, scores, old=old, ref=None)
    assert [sample.rollout.sample_index for sample in train.samples] == [0, 2]
    assert train.samples[0].advantages == pytest.approx(np.full(2, np.sqrt(0.5)), abs=1e-5)


def test_a_group_left_with_one_score_is_dropped() -> None:
    scores = {("p0", 0): GOOD, ("p0", 1): BAD}
    assert scored_groups([make_group(lengths=(1, 1))], scores) == []


def test_advantages_cover_every_token_and_keep_the_reference() -> None:
    group = make_group(lengths=(3, 1))
    scores = {("p0", 0): GOOD, ("p0", 1): ZERO}
    log_probs = [[rollout.log_probs for rollout in group.rollouts]]
    (train,) = assign_advantages([group], scores, old=log_probs, ref=log_probs)
    assert [sample.advantages.shape for sample in train.samples] == [(3,), (1,)]
    assert train.samples[1].ref_log_probs is group.rollouts[1].log_probs
