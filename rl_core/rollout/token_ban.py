"""Tokens that vLLM must not sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rl_core.models.output_head import BANNED_LOGIT_BIAS

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor


def token_ban(token_ids: Sequence[int]) -> "type[LogitsProcessor]":
    """A logits processor that bans these tokens in every request. A request's own `logit_bias` does the same, and vLLM
    puts the biases of all requests together anew whenever one of them ends."""
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class TokenBan(LogitsProcessor):  # type: ignore[misc]  # vLLM's classes have no types
        """Adds the bias of banned tokens."""

        def __init__(self, vllm_config: "VllmConfig", device: torch.device, is_pin_memory: bool) -> None:
            self._token_ids = torch.tensor(list(token_ids), dtype=torch.int64, device=device)

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: "BatchUpdate | None") -> None:
            """All requests are alike."""

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            """[B, V] float32 logits, which are changed in place."""
            logits[:, self._token_ids] += BANNED_LOGIT_BIAS
            return logits

    return TokenBan
