"""The end of a draw does not depend on the order and the time in which rollouts and scores come, and nothing behind it
is waited for."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.filters import BoundsFilter
from rl_core.loop.draws import EVERY_GROUP, DrawScores, Quota, informative_groups
from rl_core.rewards.sample import RewardSample
from rl_core.types import Group, Rollout, RolloutKey, Score
from tests.rl_core.builders import make_group, make_prompt, make_rollout

N = 2


@dataclass
class Pool:
    """Has the score of a rollout ready when so many more have come, or when nothing else comes.

    Attributes:
        lags: Of each rollout.
        informative: Prompts whose rollouts get the score 1; others get 0.
    """

    lags: Mapping[RolloutKey, int]
    informative: Sequence[bool]
    futures: dict[RolloutKey, "Future[Score]"] = field(default_factory=dict)

    def submit(self, sample: RewardSample) -> "Future[Score]":
        key = (sample.prompt_uid, sample.sample_index)
        self.futures[key] = Future()
        for place, each in enumerate(self.futures):
            if place + self.lags[each] < len(self.futures):
                self._finish(each)
        return self.futures[key]

    def flush(self) -> None:
        for key in self.futures:
            self._finish(key)

    def _finish(self, key: RolloutKey) -> None:
        if not self.futures[key].done():
            self.futures[key].set_result(Score(components={"overall": float(self.informative[int(key[0])])}))


def is_informative(group: Group, scores: Mapping[RolloutKey, Score]) -> bool:
    return all(scores[rollout.key].overall > 0.0 for rollout in group.rollouts)


@dataclass
class Draw:
    """What comes of a draw.

    Attributes:
        informative: Of each prompt, in the order of the loader, whether its group counts.
        arrivals: Rollouts in the order in which they are finished.
        lags: See Pool.
        missing: Groups that are needed.
    """

    informative: list[bool]
    arrivals: list[RolloutKey]
    lags: dict[RolloutKey, int]
    missing: int

    @property
    def end(self) -> int:
        """The number of groups that the draw has."""
        counted = [place for place, counts in enumerate(self.informative) if counts]
        return counted[self.missing - 1] + 1 if len(counted) >= self.missing else len(self.informative)


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    informative = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    keys = [(str(place), index) for place in range(len(informative)) for index in range(N)]
    lags = draw(st.fixed_dictionaries({key: st.integers(0, 4) for key in keys}))
    return Draw(informative, draw(st.permutations(keys)), lags, draw(st.integers(1, 5)))


def scored(draw: Draw, quota: Quota) -> tuple[DrawScores, list[RolloutKey]]:
    """The draw after `watch`, and the rollouts that it has taken until then."""
    taken: list[RolloutKey] = []

    def rollouts() -> Iterator[Rollout]:
        for key in draw.arrivals:
            taken.append(key)
            yield make_rollout(*key)

    prompts = [make_prompt(str(place)) for place in range(len(draw.informative))]
    scores = DrawScores(Pool(draw.lags, draw.informative), prompts, N, quota, step=1)  # type: ignore[arg-type]
    scores.watch(rollouts())
    return scores, taken


@given(draws())
def test_a_draw_ends_with_the_group_that_meets_the_quota_whatever_comes_first(draw):
    scores, _ = scored(draw, Quota(missing=draw.missing, is_informative=is_informative))
    batch = scores.wait()
    uids = [str(place) for place in range(draw.end)]
    assert [group.prompt.uid for group in batch.groups] == uids
    assert all([rollout.sample_index for rollout in group.rollouts] == [0, 1] for group in batch.groups)
    assert list(batch.scores) == sorted((uid, index) for uid in uids for index in range(N))


@given(draws())
def test_no_rollout_is_taken_after_the_last_score_that_is_needed(draw):
    quota = Quota(missing=draw.missing, is_informative=is_informative)
    _, taken = scored(draw, quota)
    needed = [key for key in draw.arrivals if int(key[0]) < draw.end]
    known = [draw.arrivals.index(key) + draw.lags[key] + 1 for key in needed]
    is_filled = sum(draw.informative) >= draw.missing
    assert len(taken) == (min(max(known), len(draw.arrivals)) if is_filled else len(draw.arrivals))


@given(draws())
def test_without_a_quota_every_group_is_needed(draw):
    scores, taken = scored(draw, EVERY_GROUP)
    assert len(scores.wait().groups) == len(draw.informative) and taken == draw.arrivals


def test_a_rollout_that_the_generator_left_out_is_missed():
    draw = Draw(informative=[True], arrivals=[("0", 1)], lags={("0", 1): 0}, missing=1)
    scores, _ = scored(draw, EVERY_GROUP)
    with pytest.raises(RuntimeError, match=r"the generator left out \[\('0', 0\)\]"):
        scores.wait()


def test_groups_between_the_bounds_of_the_named_component_pass_in_their_order():
    groups = [make_group(uid) for uid in ("solved", "half", "failed", "other")]
    accuracy = {"solved": (1.0, 1.0), "half": (0.0, 1.0), "failed": (0.0, 0.0), "other": (1.0, 0.0)}
    scores = {
        (uid, index): Score(components={"overall": 0.5, "accuracy": value})
        for uid, pair in accuracy.items()
        for index, value in enumerate(pair)
    }
    passed = informative_groups(groups, scores, BoundsFilter(filter_key="accuracy"))
    assert [group.prompt.uid for group in passed] == ["half", "other"]
    scores = {
        key: replace(score, components={"overall": 0.5}) if key[0] == "half" else score for key, score in scores.items()
    }
    by_some = informative_groups(groups, scores, BoundsFilter(filter_key="accuracy"), may_lack=True)
    assert [group.prompt.uid for group in by_some] == ["other"], "no part of the mixture judges the group `half`"
    assert informative_groups(groups, scores, BoundsFilter(filter_key="overall")) == groups
