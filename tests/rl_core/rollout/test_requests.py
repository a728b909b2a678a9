"""Requests keyed by what they are for, and groups put together from rollouts in any order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rollout.requests import collect_groups, requests_for
from tests.rl_core.builders import make_prompt, make_rollout

PROMPTS = [make_prompt("a"), make_prompt("b"), make_prompt("c")]
ROLLOUTS = [make_rollout(prompt.uid, index) for prompt in PROMPTS for index in range(4)]


def _seeds(**changes: int) -> dict[tuple[str, int], int]:
    key = {"run_seed": 1, "step": 1} | changes
    requests = requests_for(PROMPTS, 4, **key)
    return {(request.prompt.uid, request.sample_index): request.seed for request in requests}


def test_no_two_requests_share_a_seed_within_or_between_steps_and_runs():
    seeds = [seed for key in ({}, {"step": 2}, {"run_seed": 2}) for seed in _seeds(**key).values()]
    assert len(set(seeds)) == 3 * 12
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_does_not_depend_on_the_other_prompts_or_their_order():
    alone = requests_for([PROMPTS[1]], 2, run_seed=1, step=1)
    assert [request.seed for request in alone] == [_seeds()["b", 0], _seeds()["b", 1]]


@given(st.permutations(ROLLOUTS))
def test_groups_are_ordered_by_key_whatever_finished_first(arrived):
    groups = collect_groups(PROMPTS, arrived, 4)
    assert [group.prompt.uid for group in groups] == ["a", "b", "c"]
    assert [rollout.key for group in groups for rollout in group.rollouts] == [rollout.key for rollout in ROLLOUTS]


def test_a_missing_a_doubled_and_a_foreign_rollout_are_named():
    with pytest.raises(RuntimeError, match=r"left out \[\('a', 0\)\] and added \[\]"):
        collect_groups(PROMPTS, ROLLOUTS[1:], 4)
    with pytest.raises(RuntimeError, match="sample 3 of prompt c twice"):
        collect_groups(PROMPTS, [*ROLLOUTS, ROLLOUTS[-1]], 4)
    with pytest.raises(RuntimeError, match=r"added \[\('a', 9\)\]"):
        collect_groups(PROMPTS, [*ROLLOUTS, replace(ROLLOUTS[0], sample_index=9)], 4)
