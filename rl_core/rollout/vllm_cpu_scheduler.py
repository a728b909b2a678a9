"""vLLM's scheduler with less work for requests that are past their prompts, as nearly all are in nearly all steps."""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.request import Request

EncoderInputs = tuple[list[int], int, int, list[int], list[int]]


class DecodeScheduler(Scheduler):  # type: ignore[misc]  # vLLM's classes have no types
    """Decides as `Scheduler` does, and asks fewer questions about a request that samples its next token."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.num_lookahead_tokens == 0, "the engine has no draft model"
        if is_one_full_attention(self.kv_cache_manager):
            self.kv_cache_manager.allocate_slots = SlotsOfABlock(self.kv_cache_manager)

    def _try_schedule_encoder_inputs(
        self,
        request: Request,
        num_computed_tokens: int,
        num_new_tokens: int,
        encoder_compute_budget: int,
        shift_computed_tokens: int = 0,
    ) -> EncoderInputs:
        """Which images the vision tower has to see in this step: none of a prompt that is computed."""
        if num_computed_tokens >= request.num_prompt_tokens:
            return [], num_new_tokens, encoder_compute_budget, [], []
        found: EncoderInputs = super()._try_schedule_encoder_inputs(
            request, num_computed_tokens, num_new_tokens, encoder_compute_budget, shift_computed_tokens
        )
        return found


def is_one_full_attention(manager: KVCacheManager) -> bool:
    """Whether all layers keep all tokens, in blocks of one size."""
    groups = manager.coordinator.single_type_managers
    return len(groups) == 1 and type(groups[0]) is FullAttentionManager


class SlotsOfABlock:
    """`KVCacheManager.allocate_slots`, answered at once for a token that neither needs a new block nor fills its block.

    A full block would be kept as a prefix of other requests, so that one is left to vLLM.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self._allocate_slots = manager.allocate_slots
        self._nothing_new: KVCacheBlocks = manager.empty_kv_cache_blocks
        self._block_tokens: int = manager.coordinator.single_type_managers[0].block_size

    def __call__(self, request: Request, num_new_tokens: int, *args: Any, **kwargs: Any) -> KVCacheBlocks | None:
        """The new blocks of a request; None if too few are free."""
        if self.is_within_block(request, num_new_tokens):
            return self._nothing_new
        return self._allocate_slots(request, num_new_tokens, *args, **kwargs)

    def is_within_block(self, request: Request, num_new_tokens: int) -> bool:
        """Whether the request's next token is neither the first nor the last of its block."""
        computed = request.num_computed_tokens
        is_decoded = num_new_tokens == 1 and computed >= request.num_prompt_tokens
        return is_decoded and 0 < computed % self._block_tokens < self._block_tokens - 1
