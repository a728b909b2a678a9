"""vLLM's scheduler with less work for steps in which every running request samples its next token, as in nearly all."""

from typing import Any

from typing_extensions import override
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.sched.utils import check_stop, remove_all
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

NewBlocks = tuple[list[int], ...] | None
"""The numbers of a request's new blocks, for each group of layers; None if it gets none."""


class DecodeScheduler(Scheduler):  # type: ignore[misc]  # vLLM's classes have no types
    """Decides as `Scheduler` does. In a decoding step it asks a request only what can have changed.

    A decoding step is one in which no request waits, every running request has one token that is not computed, and the
    cache has room for all of these. Each of them is computed then.
    """

    running: list[Request]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.num_lookahead_tokens == 0, "the engine has no draft model"
        assert self.connector is self.ec_connector is self.aux_output_connector is None, "its cache is its own"
        assert not self.log_stats, "requests have no events"
        self._has_full_attention = is_one_full_attention(self.kv_cache_manager)
        self._decoding_step: SchedulerOutput | None = None

    @override
    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        self._decoding_step = None
        if not self._is_decoding():
            return super().schedule(throttle_prefills)
        running, self.running = self.running, []
        step = super().schedule(throttle_prefills)  # what a step has besides its requests
        self.running = running
        ids = [request.request_id for request in running]
        step.num_scheduled_tokens = dict.fromkeys(ids, 1)
        step.total_num_scheduled_tokens = len(ids)
        step.scheduled_cached_reqs = CachedRequestData(
            req_ids=ids,
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},  # read with asynchronous scheduling only
            new_block_ids=[self._new_blocks(request) for request in running],
            num_computed_tokens=[request.num_computed_tokens for request in running],
            num_output_tokens=[len(request.output_token_ids) for request in running],
        )
        self.prev_step_scheduled_req_ids.update(ids)
        for request in running:
            request.num_computed_tokens += 1
            request.num_in_flight_tokens += 1
        self._decoding_step = step
        return step

    @override
    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        is_decoding = scheduler_output is self._decoding_step
        if not is_decoding:
            updated: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
            return updated
        requests = map(self.requests.get, scheduler_output.num_scheduled_tokens)
        outputs = [
            self._update(request, model_runner_output)
            for request in requests
            if request is not None  # aborted while the step was computed
        ]
        if any(output.finish_reason is not None for output in outputs):
            self.running = remove_all(self.running, {request for request in self.running if request.is_finished()})
        return {0: EngineCoreOutputs(outputs=outputs)}

    def _is_decoding(self) -> bool:
        """Whether the next step is a decoding step. A running request whose prompt is computed has one token that is
        not: the last one that was sampled."""
        if self.waiting or self.kv_holding_waiting or not self._has_full_attention:
            return False
        if any(request.is_prefill_chunk for request in self.running):
            return False
        new_blocks: int = sum(request.num_computed_tokens % self.block_size == 0 for request in self.running)
        free_blocks: int = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return new_blocks <= free_blocks

    def _new_blocks(self, request: Request) -> NewBlocks:
        """Room for a request's next token. A token that fills its block makes it a prefix of other requests."""
        if 0 < request.num_computed_tokens % self.block_size < self.block_size - 1:
            return None
        blocks: NewBlocks = self.kv_cache_manager.allocate_slots(request, 1).get_block_ids(allow_none=True)
        return blocks

    def _update(self, request: Request, sampled: ModelRunnerOutput) -> EngineCoreOutput:
        index = sampled.req_id_to_index[request.request_id]
        token_ids = sampled.sampled_token_ids[index]
        request.num_in_flight_tokens -= 1
        request._output_token_ids.extend(token_ids)
        request._all_token_ids.extend(token_ids)
        if request.num_tokens % self.block_size == 0:
            request.update_block_hashes()
        finish_reason = None
        if check_stop(request, self.max_model_len):
            finish_reason = request.get_finished_reason()
            self._free_request(request)
        return EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=token_ids,
            new_logprobs=sampled.logprobs.slice_request(index, 1),
            finish_reason=finish_reason,
            stop_reason=request.stop_reason,
        )


def is_one_full_attention(manager: KVCacheManager) -> bool:
    """Whether all layers keep all tokens, in blocks of one size."""
    groups = manager.coordinator.single_type_managers
    return len(groups) == 1 and type(groups[0]) is FullAttentionManager
