"""What the scheduler answers without asking vLLM is what vLLM would have answered."""

from collections import Counter
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from rl_core.rollout.vllm_cpu_scheduler import DecodeScheduler, SlotsOfABlock
from tests.rl_core.rollout.engines import Running, assert_same_rollouts, make_requests, training_sampling


@pytest.fixture
def scheduler(synced: Running) -> DecodeScheduler:
    scheduler = synced.engine._engine.engine_core.engine_core.scheduler
    assert type(scheduler) is DecodeScheduler
    return scheduler


@pytest.mark.parametrize("running", ["qwen2_5_vl", "llama"], indirect=True)
def test_a_token_within_its_block_needs_nothing(
    synced: Running, scheduler: DecodeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = scheduler.kv_cache_manager
    slots, asked = manager.allocate_slots, Counter()
    assert isinstance(slots, SlotsOfABlock)

    def state(request: Request) -> tuple[int, Any, Any]:
        cached = dict(manager.coordinator.single_type_managers[0].num_cached_block)
        return manager.block_pool.get_num_free_blocks(), manager.get_block_ids(request.request_id), cached

    def ask_both(request: Request, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        is_within, before = slots.is_within_block(request, num_new_tokens), state(request)
        answer = slots._allocate_slots(request, num_new_tokens, *args, **kwargs)
        if is_within:
            assert answer.get_block_ids(allow_none=True) is None
            assert state(request) == before
        asked["within" if is_within else "at a bound" if request.num_output_tokens else "prompt"] += 1
        return answer

    monkeypatch.setattr(manager, "allocate_slots", ask_both)
    synced.generate(make_requests(synced.policy.prompts(), 8), training_sampling())
    assert asked["prompt"] >= 16
    assert asked["within"] > asked["at a bound"] > 0, asked


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_images_are_looked_for_in_prompts_only(
    synced: Running, scheduler: DecodeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter()

    def ask_both(request: Request, computed: int, *rest: Any, **kwargs: Any) -> Any:
        answer = DecodeScheduler._try_schedule_encoder_inputs(scheduler, request, computed, *rest, **kwargs)
        if computed >= request.num_prompt_tokens:
            assert answer == Scheduler._try_schedule_encoder_inputs(scheduler, request, computed, *rest, **kwargs)
        asked[computed >= request.num_prompt_tokens] += 1
        return answer

    monkeypatch.setattr(scheduler, "_try_schedule_encoder_inputs", ask_both)
    synced.generate(make_requests(synced.policy.prompts(), 4), training_sampling())
    assert asked[False] > 0 < asked[True]


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_requests_that_are_put_back_for_want_of_blocks_go_on_where_they_were(
    synced: Running, scheduler: DecodeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their seeds, positions and blocks too: the rollouts are those of a large cache."""
    requests = make_requests(synced.policy.prompts()[:3], 8)
    expected = synced.generate(requests, training_sampling())
    synced.sync()
    put_back, pool = Counter(), scheduler.kv_cache_manager.block_pool
    preempt = scheduler._preempt_request

    def counted(request: Request, *args: Any, **kwargs: Any) -> None:
        put_back[request.request_id] += 1
        preempt(request, *args, **kwargs)

    monkeypatch.setattr(scheduler, "_preempt_request", counted)
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - 12)
    try:
        found = synced.generate(requests, training_sampling())
    finally:
        pool.free_blocks(taken)
    assert len(put_back) > 1
    assert_same_rollouts(found, expected)
