"""Work is dealt whole, evenly, and in the same way whatever order it comes in; results come back in the caller's."""

from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rl_core.rollout.requests import requests_for
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import GenerationRequest, TrainGroup
from rl_core.workers.dealing import (
    PAIRS_A_TOKEN,
    deal,
    deal_update,
    dealt,
    equal_blocks,
    put_back,
    shrinking_blocks,
    work_of,
)
from tests.rl_core.builders import drawn_groups, groups_of, make_prompt, make_train_group

GROUPS = drawn_groups(make_train_group, prompt=600, response=400, samples=4, least=0, most=12)
WORKERS = st.integers(1, 5)


def uids(parts: list[list[TrainGroup]]) -> list[set[str]]:
    return [{group.prompt.uid for group in part} for part in parts]


def loads(groups: list[TrainGroup], workers: int) -> list[int]:
    return [sum(map(work_of, part)) for part in dealt(groups, deal(groups, workers))]


@given(groups=GROUPS, workers=WORKERS)
def test_every_group_is_dealt_once_and_every_worker_has_a_part(groups, workers):
    places = deal(groups, workers)
    assert len(places) == workers
    assert sorted(place for part in places for place in part) == list(range(len(groups)))


@given(groups=GROUPS, workers=WORKERS, seed=st.integers(0, 99))
def test_the_order_of_the_groups_changes_nothing(groups, workers, seed):
    shuffled = Random(seed).sample(groups, len(groups))
    assert uids(dealt(shuffled, deal(shuffled, workers))) == uids(dealt(groups, deal(groups, workers)))


@given(groups=GROUPS.filter(lambda groups: 0 < len(groups) <= 6), workers=st.integers(2, 3))
def test_the_fullest_worker_keeps_the_bound_of_longest_processing_time(groups, workers):
    work = [work_of(group) for group in groups]
    ways = product(range(workers), repeat=len(groups))
    best = min(max(sum(w for w, at in zip(work, way, strict=True) if at == k) for k in range(workers)) for way in ways)
    assert max(loads(groups, workers)) * 3 * workers <= best * (4 * workers - 1)


@given(groups=GROUPS, workers=WORKERS)
def test_results_come_back_in_the_callers_order(groups, workers):
    places = deal(groups, workers)
    found = [[group.prompt.uid for group in part] for part in dealt(groups, places)]
    assert put_back(found, places) == [group.prompt.uid for group in groups]


@given(groups=GROUPS, workers=WORKERS)
def test_old_log_probs_are_computed_where_the_update_is(groups, workers):
    """So that the micro-batches are the same, and the first ratio is exactly 1."""
    before = groups_of(groups)
    assert deal(before, workers) == deal(groups, workers)


def test_attention_makes_one_long_group_more_work_than_short_ones_of_as_many_tokens():
    long = make_train_group("p0", lengths=(2000,), prompt_length=2000)
    short = make_train_group("p1", lengths=(100,) * 20, prompt_length=2000)
    assert work_of(long) > work_of(short)
    assert work_of(short) > 4000 * PAIRS_A_TOKEN


@given(groups=GROUPS.filter(len), workers=WORKERS, epochs=st.integers(1, 3))
def test_each_worker_gets_every_optimizer_batch_with_the_totals_of_all(groups, workers, epochs):
    half = len(groups) // 2
    halves = [OptimizerBatch.of(part, longest_response=400) for part in (groups[:half], groups[half:])]
    whole = OptimizerBatch.of(groups, longest_response=400)
    batch = UpdateBatch(policy=halves * epochs, critic=[whole], kl_coef=0.5, check_agreement=False)
    parts = deal_update(batch, workers)
    assert len(parts) == workers
    for number, each in enumerate(batch.policy):
        assert all(part.policy[number].totals == each.totals for part in parts)
        dealt_uids = sorted(group.prompt.uid for part in parts for group in part.policy[number].groups)
        assert dealt_uids == sorted(group.prompt.uid for group in each.groups)
    for part in parts:
        assert (part.kl_coef, part.check_agreement, len(part.critic)) == (0.5, False, 1)
        assert part.policy[0] is part.policy[2 * (epochs - 1)]


PROMPTS = st.integers(0, 20).map(lambda count: [make_prompt(f"p{i}") for i in range(count)])
SAMPLES = st.integers(1, 4)


def keys_of(blocks: list[list[GenerationRequest]]) -> list[tuple[str, int]]:
    """Prompt and sample of the requests, one block after the other."""
    return [(request.prompt.uid, request.sample_index) for block in blocks for request in block]


@given(prompts=PROMPTS, n=SAMPLES, workers=WORKERS)
def test_every_generator_gets_a_block_of_whole_groups(prompts, n, workers):
    blocks = equal_blocks(requests_for(prompts, n, run_seed=1, step=1), workers)
    for worker, block in enumerate(blocks):
        assert keys_of([block]) == [(prompt.uid, index) for prompt in prompts[worker::workers] for index in range(n)]
    sizes = [len(block) // n for block in blocks]
    assert len(sizes) == workers and sum(sizes) == len(prompts) and max(sizes) - min(sizes) <= 1


@given(prompts=PROMPTS, n=SAMPLES, workers=WORKERS)
def test_blocks_that_are_taken_by_need_shrink(prompts, n, workers):
    blocks = shrinking_blocks(requests_for(prompts, n, run_seed=1, step=1), workers)
    assert keys_of(blocks) == [(prompt.uid, index) for prompt in prompts for index in range(n)]
    assert sum(len({request.prompt.uid for request in block}) for block in blocks) == len(prompts), "in one block each"
    sizes = [len(block) for block in blocks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes)
