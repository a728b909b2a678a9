"""What the scheduler decides in decoding steps is what vLLM would have decided."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.request import Request

from rl_core.rollout.cpu.scheduler import DecodeScheduler
from rl_core.types import GenerationRequest
from tests.rl_core.rollout.engines import Running, assert_same_rollouts, make_requests, training_sampling


@pytest.fixture
def scheduler(synced: Running) -> DecodeScheduler:
    scheduler = synced.engine._engine.engine_core.engine_core.scheduler
    assert type(scheduler) is DecodeScheduler
    return scheduler


@dataclass
class Decisions:
    """What a scheduler decided in each step of a generation. Requests are numbered from the generation's first one."""

    steps: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    decoding_steps: int = 0


def number_of(request_id: str, first: int) -> int:
    return int(request_id) - first


def as_values(step: SchedulerOutput, first: int) -> dict[str, Any]:
    """What a step says of its requests. Blocks are counted: their numbers depend on what was freed before."""
    cached = step.scheduled_cached_reqs
    return {
        "new": [number_of(request.req_id, first) for request in step.scheduled_new_reqs],
        "tokens": [(number_of(request, first), count) for request, count in step.num_scheduled_tokens.items()],
        "total": step.total_num_scheduled_tokens,
        "cached": [number_of(request, first) for request in cached.req_ids],
        "resumed": sorted(number_of(request, first) for request in cached.resumed_req_ids),
        "all tokens": cached.all_token_ids,
        "new blocks": [blocks and [len(group) for group in blocks] for blocks in cached.new_block_ids],
        "computed": cached.num_computed_tokens,
        "sampled": cached.num_output_tokens,
        "new tokens": cached.new_token_ids,
        "ended": sorted(number for request in step.finished_req_ids if (number := number_of(request, first)) >= 0),
        "images": {number_of(request, first): places for request, places in step.scheduled_encoder_inputs.items()},
        "structured": step.has_structured_output_requests,
    }


def as_row(output: EngineCoreOutput, first: int) -> tuple[Any, ...]:
    assert output.new_logprobs is not None
    sampled = [array.tolist() for array in output.new_logprobs[:3]]
    return (
        number_of(output.request_id, first),
        output.new_token_ids,
        sampled,
        output.finish_reason,
        output.stop_reason,
        output.num_nans_in_logits,
    )


def state_of(scheduler: DecodeScheduler, first: int) -> list[Any]:
    pool = scheduler.kv_cache_manager.block_pool
    requests = [
        (
            number_of(request.request_id, first),
            request.status,
            request.num_computed_tokens,
            request.num_in_flight_tokens,
            request.is_prefill_chunk,
            list(request.all_token_ids),
            len(request.block_hashes),
        )
        for request in scheduler.running
    ]
    return [requests, pool.get_num_free_blocks(), len(pool.cached_block_hash_to_block)]


def decisions(
    synced: Running, scheduler: DecodeScheduler, requests: list[GenerationRequest], monkeypatch: pytest.MonkeyPatch
) -> Decisions:
    """Generate from fresh caches, and note what is decided."""
    found, firsts = Decisions(), []
    schedule, update = scheduler.schedule, scheduler.update_from_output

    def noted_schedule(*args: Any) -> SchedulerOutput:
        firsts.append(min(map(int, scheduler.requests), default=0))
        step = schedule(*args)
        found.steps.append(as_values(step, firsts[0]))
        found.decoding_steps += scheduler._decoding_step is not None
        return step

    def noted_update(*args: Any) -> Any:
        outputs = update(*args)
        found.outputs.append([as_row(output, firsts[0]) for client in outputs.values() for output in client.outputs])
        found.states.append(state_of(scheduler, firsts[0]))
        return outputs

    synced.sync()
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "schedule", noted_schedule)
        patch.setattr(scheduler, "update_from_output", noted_update)
        synced.generate(requests, training_sampling())
    return found


@pytest.mark.parametrize("running", ["qwen2_5_vl", "llama"], indirect=True)
def test_decoding_steps_are_those_of_vllm(
    synced: Running, scheduler: DecodeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = make_requests(synced.policy.prompts(), 8)
    ours = decisions(synced, scheduler, requests, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "_is_decoding", lambda: False)
        theirs = decisions(synced, scheduler, requests, monkeypatch)
    assert theirs.decoding_steps == 0
    assert 0 < ours.decoding_steps < len(ours.steps)
    assert any(any(step["new blocks"]) for step in ours.steps), "some need a block"
    for our_step, their_step in zip(ours.steps, theirs.steps, strict=True):
        assert our_step == their_step
    for our_rows, their_rows in zip(ours.outputs, theirs.outputs, strict=True):
        assert our_rows == their_rows
    assert ours.states == theirs.states


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
