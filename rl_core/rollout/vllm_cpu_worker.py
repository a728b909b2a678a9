"""vLLM's worker on a CPU, with less work for requests that are past their prompts."""

from typing import Any

import numpy as np
import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from rl_core.rollout.vllm_cpu_sampling import SeededSampler


class DecodeWorker(CPUWorker):  # type: ignore[misc]  # vLLM's classes have no types
    """A worker with a `DecodeRunner`."""

    model_runner: CPUModelRunner

    def init_device(self) -> None:
        """Make what computes the steps."""
        super().init_device()
        assert type(self.model_runner) is CPUModelRunner, type(self.model_runner)
        self.model_runner = DecodeRunner(self.vllm_config, torch.device("cpu"))


class DecodeRunner(CPUModelRunner):  # type: ignore[misc]  # vLLM's classes have no types
    """Prepares a step as `CPUModelRunner` does, and treats all requests at once where it treats one after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sampler.topk_topp_sampler = SeededSampler()

    def _init_mrope_positions(self, req_state: Any) -> None:
        """Multimodal rotary positions of a prompt. vLLM also checks for each request what the model can do."""
        req_state.mrope_positions, req_state.mrope_position_delta = self.model.get_mrope_input_positions(
            req_state.prompt_token_ids, req_state.mm_features
        )

    def _calc_mrope_positions(self, scheduler_output: SchedulerOutput) -> None:
        """Multimodal rotary positions of the tokens of a step. After its prompt, all three positions of a token are
        its place in the sequence plus a difference that the prompt's images decide."""
        batch = self.input_batch
        count = batch.num_reqs
        places = batch.num_computed_tokens_cpu[:count]
        is_decoding = scheduler_output.total_num_scheduled_tokens == count and np.all(
            places >= batch.num_prompt_tokens[:count]
        )
        if not is_decoding:
            super()._calc_mrope_positions(scheduler_output)
            return
        differences = (self.requests[request].mrope_position_delta for request in batch.req_ids)
        self.mrope_positions.np[:, :count] = places + np.fromiter(differences, dtype=np.int64, count=count)
