"""vLLM's worker on a CPU, with less work for requests that are past their prompts."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from typing_extensions import override
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.outputs import SamplerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from rl_core.rollout.cpu.sampling import SeededSampler


class DecodeWorker(CPUWorker):  # type: ignore[misc]  # vLLM's classes have no types
    """A worker with a `DecodeRunner`."""

    model_runner: CPUModelRunner

    @override
    def init_device(self) -> None:
        super().init_device()
        assert type(self.model_runner) is CPUModelRunner, type(self.model_runner)
        self.model_runner = DecodeRunner(self.vllm_config, torch.device("cpu"))


class DecodeRunner(CPUModelRunner):  # type: ignore[misc]  # vLLM's classes have no types
    """Prepares a step as `CPUModelRunner` does, and treats all requests at once where it treats one after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sampler.topk_topp_sampler = SeededSampler()

    @override
    def _update_states(self, scheduler_output: SchedulerOutput) -> Any:
        going_on = scheduler_output.scheduled_cached_reqs
        if scheduler_output.total_num_scheduled_tokens == len(going_on.req_ids) and self._are_in_batch(going_on):
            self._advance(going_on)
            scheduler_output = replace(scheduler_output, scheduled_cached_reqs=CachedRequestData.make_empty())
        return super()._update_states(scheduler_output)

    def _are_in_batch(self, going_on: CachedRequestData) -> bool:
        places = self.input_batch.req_id_to_index
        return not going_on.resumed_req_ids and all(map(places.__contains__, going_on.req_ids))

    def _advance(self, going_on: CachedRequestData) -> None:
        """Note how far the requests are, and their new blocks."""
        batch = self.input_batch
        places = [batch.req_id_to_index[request] for request in going_on.req_ids]
        batch.num_computed_tokens_cpu[places] = going_on.num_computed_tokens
        states = map(self.requests.__getitem__, going_on.req_ids)
        rows = zip(states, places, going_on.num_computed_tokens, going_on.new_block_ids, strict=True)
        for state, place, computed, new_blocks in rows:
            state.num_computed_tokens = computed
            if new_blocks is not None:
                batch.block_table.append_row(new_blocks, place)
                for blocks, new in zip(state.block_ids, new_blocks, strict=True):
                    blocks.extend(new)

    @override
    def _gather_mm_embeddings(self, scheduler_output: SchedulerOutput, *args: Any) -> tuple[list[torch.Tensor], Any]:
        if self._is_decoding(scheduler_output):
            return [], torch.zeros(scheduler_output.total_num_scheduled_tokens, dtype=torch.bool)
        gathered: tuple[list[torch.Tensor], Any] = super()._gather_mm_embeddings(scheduler_output, *args)
        return gathered

    @override
    def _calc_mrope_positions(self, scheduler_output: SchedulerOutput) -> None:
        """After its prompt, all three positions of a token are its place in the sequence plus a difference that the
        prompt's images decide."""
        if not self._is_decoding(scheduler_output):
            super()._calc_mrope_positions(scheduler_output)
            return
        batch = self.input_batch
        count = batch.num_reqs
        differences = (self.requests[request].mrope_position_delta for request in batch.req_ids)
        self.mrope_positions.np[:, :count] = batch.num_computed_tokens_cpu[:count] + np.fromiter(
            differences, dtype=np.int64, count=count
        )

    def _is_decoding(self, scheduler_output: SchedulerOutput) -> bool:
        """Whether all tokens of a step are past their prompts, one of each request."""
        batch = self.input_batch
        count = batch.num_reqs
        is_past = batch.num_computed_tokens_cpu[:count] >= batch.num_prompt_tokens[:count]
        return scheduler_output.total_num_scheduled_tokens == count and bool(is_past.all())

    @override
    def _bookkeeping_sync(
        self, scheduler_output: SchedulerOutput, sampler_output: SamplerOutput, *args: Any
    ) -> tuple[Any, ...]:
        count = self.input_batch.num_reqs
        if self.discard_request_mask.np[:count].any():
            kept: tuple[Any, ...] = super()._bookkeeping_sync(scheduler_output, sampler_output, *args)
            return kept
        sampled = sampler_output.sampled_token_ids
        token_ids = self._keep(sampled)
        without = replace(sampler_output, sampled_token_ids=sampled[:0])  # which leaves vLLM's loop nothing to do
        *before, _, prompt_logprobs, request_ids, places, invalid = super()._bookkeeping_sync(
            scheduler_output, without, *args
        )
        return (*before, token_ids, prompt_logprobs, request_ids, places, invalid)

    def _keep(self, sampled: torch.Tensor) -> list[list[int]]:
        """Add the sampled tokens, [B, 1] int, to the batch. Returns them as lists."""
        batch = self.input_batch
        rows, ends = np.arange(len(sampled)), batch.num_tokens_no_spec[: len(sampled)]
        batch.token_ids_cpu[rows, ends] = sampled[:, 0].numpy()
        batch.is_token_ids[rows, ends] = True
        ends += 1  # in the batch
        token_ids: list[list[int]] = sampled.tolist()
        for request, new in zip(batch.req_ids, token_ids, strict=True):
            self.requests[request].output_token_ids.extend(new)
        return token_ids
