"""Work is dealt whole, evenly, and in the same way whatever order it comes in; results come back in the caller's."""

import pickle
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rollout.requests import requests_for
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import GenerationRequest, Prompt, TrainGroup
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
from tests.rl_core.builders import groups_of, make_prompt, make_train_group

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=4)
GROUPS = st.lists(st.tuples(st.integers(1, 600), LENGTHS), max_size=12).map(
    lambda specs: [
        make_train_group(f"p{i}", lengths=tuple(lengths), prompt_length=prompt)
        for i, (prompt, lengths) in enumerate(specs)
    ]
)
WORKERS = st.integers(1, 5)


def uids(parts: list[list[TrainGroup]]) -> list[set[str]]:
    return [{group.prompt.uid for group in part} for part in parts]


def loads(groups: list[TrainGroup], workers: int) -> list[int]:
    return [sum(map(work_of, part)) for part in dealt(groups, deal(groups, workers))]


@given(groups=GROUPS, workers=WORKERS)
def test_every_group_is_dealt_once_and_every_worker_has_a_part(groups: list[TrainGroup], workers: int) -> None:
    places = deal(groups, workers)
    assert len(places) == workers
    assert sorted(place for part in places for place in part) == list(range(len(groups)))


@given(groups=GROUPS, workers=WORKERS, seed=st.integers(0, 99))
def test_the_order_of_the_groups_changes_nothing(groups: list[TrainGroup], workers: int, seed: int) -> None:
    shuffled = Random(seed).sample(groups, len(groups))
    assert uids(dealt(shuffled, deal(shuffled, workers))) == uids(dealt(groups, deal(groups, workers)))


@given(groups=GROUPS, workers=WORKERS)
def test_no_worker_gets_more_than_its_share_and_a_part_of_the_largest_group(
    groups: list[TrainGroup], workers: int
) -> None:
    """What holds for every list schedule: when the last group of the fullest worker was dealt, all had as much."""
    work = [work_of(group) for group in groups]
    assert max(loads(groups, workers)) * workers <= sum(work) + (workers - 1) * max(work, default=0)


@given(groups=GROUPS.filter(lambda groups: 0 < len(groups) <= 6), workers=st.integers(2, 3))
def test_the_fullest_worker_keeps_the_bound_of_longest_processing_time(groups: list[TrainGroup], workers: int) -> None:
    work = [work_of(group) for group in groups]
    ways = product(range(workers), repeat=len(groups))
    best = min(max(sum(w for w, at in zip(work, way, strict=True) if at == k) for k in range(workers)) for way in ways)
    assert max(loads(groups, workers)) * 3 * workers <= best * (4 * workers - 1)


def test_dealing_in_the_given_order_breaks_that_bound() -> None:
    """The control: three small groups, then one as large as all of them together."""
    small = [make_train_group(f"p{i}", lengths=(1,), prompt_length=99) for i in range(4)]
    groups = [*small, make_train_group("p9", lengths=(1,), prompt_length=400)]
    work = [work_of(group) for group in groups]
    in_order = max(sum(work[0::2]), sum(work[1::2]))
    assert in_order > 7 / 6 * work[4] > max(loads(groups, 2))


@given(groups=GROUPS, workers=WORKERS)
def test_results_come_back_in_the_callers_order(groups: list[TrainGroup], workers: int) -> None:
    places = deal(groups, workers)
    found = [[group.prompt.uid for group in part] for part in dealt(groups, places)]
    assert put_back(found, places) == [group.prompt.uid for group in groups]


def test_a_worker_with_a_result_too_few_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        put_back([["a"], []], [[0], [1]])


@given(groups=GROUPS, workers=WORKERS)
def test_old_log_probs_are_computed_where_the_update_is(groups: list[TrainGroup], workers: int) -> None:
    """So that the micro-batches are the same, and the first ratio is exactly 1."""
    before = groups_of(groups)
    assert deal(before, workers) == deal(groups, workers)


def test_attention_makes_one_long_group_more_work_than_short_ones_of_as_many_tokens() -> None:
    long = make_train_group("p0", lengths=(2000,), prompt_length=2000)
    short = make_train_group("p1", lengths=(100,) * 20, prompt_length=2000)
    assert work_of(long) > work_of(short)
    assert work_of(short) > 4000 * PAIRS_A_TOKEN


@given(groups=GROUPS.filter(len), workers=WORKERS, epochs=st.integers(1, 3))
def test_each_worker_gets_every_optimizer_batch_with_the_totals_of_all(
    groups: list[TrainGroup], workers: int, epochs: int
) -> None:
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


def test_epochs_and_the_critic_are_not_sent_again() -> None:
    groups = [make_train_group(f"p{i}", lengths=(50,) * 8, prompt_length=300) for i in range(8)]
    batch = OptimizerBatch.of(groups, longest_response=50)
    once, often = (
        sum(len(pickle.dumps(part)) for part in deal_update(UpdateBatch(policy=policy, critic=critic), 2))
        for policy, critic in (([batch], []), ([batch] * 4, [batch]))
    )
    assert often < 1.05 * once


def test_what_is_sent_for_an_update_is_a_twentieth_of_padded_int64_tensors_with_an_image_in_every_row() -> None:
    """64 prompts x 5 responses of the size of a Geometry3K step. What a worker gets for a row in other systems is the
    longest prompt and the longest response, 8 bytes a token for ids, attention mask, position ids (three rows), old
    and reference log-probs and advantages of the response, and the patches of the image in float32."""
    numbers, prompts, n, patch = np.random.default_rng(0), 64, 5, 14 * 14 * 2 * 3
    groups = [
        make_train_group(
            f"p{i}", lengths=tuple(numbers.integers(50, 1500, n)), prompt_length=numbers.integers(200, 900)
        )
        for i in range(prompts)
    ]
    longest_prompt, longest_response, patches = 1024, 1536, 4 * 256
    tokens = longest_prompt + longest_response
    padded = prompts * n * (8 * (tokens * 5 + 3 * longest_response) + 4 * patches * patch)
    parts = deal_update(UpdateBatch(policy=[OptimizerBatch.of(groups, longest_response=1536)]), 2)
    assert sum(len(pickle.dumps(part, protocol=5)) for part in parts) < 0.05 * padded


PROMPTS = st.integers(0, 20).map(lambda count: [make_prompt(f"p{i}") for i in range(count)])
SAMPLES = st.integers(1, 4)


def keys_of(blocks: list[list[GenerationRequest]]) -> list[tuple[str, int]]:
    """Prompt and sample of the requests, one block after the other."""
    return [(request.prompt.uid, request.sample_index) for block in blocks for request in block]


@given(prompts=PROMPTS, n=SAMPLES, workers=WORKERS)
def test_every_generator_gets_a_block_of_whole_groups(prompts: list[Prompt], n: int, workers: int) -> None:
    blocks = equal_blocks(requests_for(prompts, n, run_seed=1, step=1), workers)
    for worker, block in enumerate(blocks):
        assert keys_of([block]) == [(prompt.uid, index) for prompt in prompts[worker::workers] for index in range(n)]
    sizes = [len(block) // n for block in blocks]
    assert len(sizes) == workers and sum(sizes) == len(prompts) and max(sizes) - min(sizes) <= 1


@given(prompts=PROMPTS, n=SAMPLES, workers=WORKERS)
def test_blocks_that_are_taken_by_need_shrink(prompts: list[Prompt], n: int, workers: int) -> None:
    blocks = shrinking_blocks(requests_for(prompts, n, run_seed=1, step=1), workers)
    assert keys_of(blocks) == [(prompt.uid, index) for prompt in prompts for index in range(n)]
    assert sum(len({request.prompt.uid for request in block}) for block in blocks) == len(prompts), "in one block each"
    sizes = [len(block) for block in blocks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes)
