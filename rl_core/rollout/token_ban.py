"""Tokens that vLLM must not sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rl_core.models.output_head import BANNED_LOGIT_BIAS

if TYPE_CHECKING:
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor


def token_ban(token_ids: Sequence[int]) -> "type[LogitsProcessor]":
    """A logits processor that bans these tokens in every request. A request's own `logit_bias` does the same, but vLLM
    puts the biases of all requests together again whenever one of them ends.

    vLLM has two model runners with a form of logits processors each, and chooses a runner by platform, model and
    environment. The class has both forms.
    """
    from vllm.v1.sample.logits_processor import LogitsProcessor
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunnersProcessor

    # On the host, because the second runner makes its processors in the device memory that a sleeping engine drops.
    # Pinned, because the copy of every step must not wait for the GPU.
    banned = torch.tensor(list(token_ids), dtype=torch.int64, pin_memory=torch.cuda.is_available())

    class TokenBan(LogitsProcessor, SecondRunnersProcessor):  # type: ignore[misc]  # vLLM's classes have no types
        def __init__(self, *_: Any) -> None:
            """Keep nothing of what the runner gives: its config, and its device or the states of its requests."""

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: "BatchUpdate | None") -> None:
            """All requests are alike."""

        def apply(self, logits: torch.Tensor, *_: Any) -> torch.Tensor:
            """[B, V] float32 logits, which are changed in place. The second runner adds the batch's layout."""
            logits[:, banned.to(logits.device, non_blocking=True)] += BANNED_LOGIT_BIAS
            return logits

    return TokenBan
