"""The sampler of vLLM's second model runner on the host's memory, its kernels in Triton's interpreter.

Imported after `pretended_cuda.pretend_card`, with TRITON_INTERPRET=1.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import vllm.v1.worker.gpu.buffer_utils as buffers
from torch.utils._python_dispatch import TorchDispatchMode
from vllm import SamplingParams
from vllm.v1.worker.gpu.mm.rope import RopeState
from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

from rl_core.rollout.unnamed_memory import UnnamedMemory, unnamed_pieces
from tests.rl_core.rollout.memory_pool import MemoryPool
from tests.rl_core.rollout.pretended_cuda import BANNED

CPU = torch.device("cpu")
REQUESTS, VOCABULARY, PROMPT, STEPS = 24, 16, [1, 2, 3], 6


class HostMemory(TorchDispatchMode):
    """Without a GPU, plain memory of the host stands for pinned memory and for what a GPU sees of it."""

    def __init__(self) -> None:
        super().__init__()
        buffers.get_accelerator_view_from_cpu_tensor = lambda tensor: tensor
        buffers.async_tensor_h2d = lambda data, device, dtype: torch.tensor(data, dtype=dtype)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{name: value for name, value in (kwargs or {}).items() if name != "pin_memory"})


class PretendedRunner:
    """The parts of a model runner that sample, made as it makes them: the states of requests before the model is
    loaded, everything else in the memory that a sleep drops."""

    def __init__(self, config: Any) -> None:
        self.model = torch.nn.Linear(1, 1)
        self.states = RequestState(REQUESTS, 64, REQUESTS, 0, VOCABULARY, CPU)
        with MemoryPool() as self.pool:
            processors = config.model_config.logits_processors
            self.sampler = Sampler(
                config,
                REQUESTS,
                VOCABULARY,
                CPU,
                self.states,
                logprobs_mode=config.model_config.logprobs_mode,
                custom_logits_processors=build_custom_logits_processors(config, self.states, False, processors),
            )
            self.rope = RopeState(3, REQUESTS, REQUESTS, 64, CPU)
        self.memory = UnnamedMemory(unnamed_pieces(self, lambda address: True))

    def begin(self, seeds: list[int]) -> None:
        """Add a request for each seed."""
        for name in list(self.states.req_id_to_index):
            self.states.remove_request(name)
        for number, seed in enumerate(seeds):
            self.states.add_request(str(number), len(PROMPT), PROMPT, 0, STEPS)
            place = self.states.req_id_to_index[str(number)]
            self.sampler.add_request(place, SamplingParams(seed=seed, logprobs=0, max_tokens=STEPS))
        self.states.apply_staged_writes()
        self.sampler.apply_staged_writes()

    def sample(self, logits: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The next token of each request and its log-prob, [REQUESTS] each, from logits [REQUESTS, VOCABULARY]."""
        places = np.array([self.states.req_id_to_index[str(number)] for number in range(REQUESTS)], dtype=np.int32)
        mapping, rows = torch.from_numpy(places), torch.arange(REQUESTS)
        lengths = torch.full((REQUESTS,), len(PROMPT) + step, dtype=torch.int32)
        batch = SimpleNamespace(
            num_reqs=REQUESTS,
            idx_mapping=mapping,
            idx_mapping_np=places,
            expanded_idx_mapping=mapping,
            expanded_local_pos=torch.zeros(REQUESTS, dtype=torch.int32),
            cu_num_logits=torch.arange(REQUESTS + 1, dtype=torch.int32),
            cu_num_logits_np=np.arange(REQUESTS + 1, dtype=np.int32),
            logits_indices=rows,
            positions=lengths.long() - 1,
            input_ids=torch.ones(REQUESTS, dtype=torch.int32),
            seq_lens=lengths,
            seq_lens_cpu_upper_bound=lengths,
        )
        output = self.sampler(logits.clone(), batch)
        return output.sampled_token_ids[:, 0], output.logprobs_tensors.logprobs[:, 0]


def findings(config: Any) -> dict[str, Any]:
    """What requests sample whose seeds differ, from the same logits; some steps once more, and after a pretended sleep.
    The interpreter takes milliseconds for each token, so there are few."""
    with HostMemory():
        runner = PretendedRunner(config)
        favours = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
        favours[BANNED] = 5.0
        logits = favours.expand(REQUESTS, -1)
        seeds = [7, 7, *range(100, 98 + REQUESTS)]
        tokens, log_probs = _generated(runner, logits, seeds, STEPS)
        again, _ = _generated(runner, logits, seeds, 1)
        runner.memory.save()
        runner.pool.drop()
        dropped = bool(runner.rope.positions.any())
        runner.memory.restore()
        awake, _ = _generated(runner, logits, seeds, 1)
        return {
            "logits": favours.tolist(),
            "tokens": tokens.tolist(),
            "log-probs": log_probs.tolist(),
            "again": again.tolist(),
            "positions are dropped": dropped,
            "positions after the sleep": runner.rope.positions.unique().tolist(),
            "after the sleep": awake.tolist(),
        }


def _generated(
    runner: PretendedRunner, logits: torch.Tensor, seeds: list[int], steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """[steps, REQUESTS] tokens and their log-probs."""
    runner.begin(seeds)
    tokens, log_probs = zip(*(runner.sample(logits, step) for step in range(steps)), strict=True)
    return torch.stack(tokens), torch.stack(log_probs)
