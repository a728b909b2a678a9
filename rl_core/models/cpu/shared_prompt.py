"""Attention over packed trees without copies of the prompts' keys: the responses of a prompt attend to it
in one call and to themselves in another, and the two results are merged by their log-sum-exps.

A softmax over two sets of keys is the average of the softmaxes over each set, weighted by exp(log-sum-exp) (Rabe and
Staats 2021, arXiv:2112.05682, section 2). The backward pass of flash attention computes the probabilities again from
the scores and the log-sum-exp (Dao et al. 2022, arXiv:2205.14135, algorithm 4). If it is given the merged output and
the merged log-sum-exp, each set's call therefore returns exactly the gradient's part of this set.

Letters as in rl_core.models.tree_attention; N is the largest number of responses of a prompt. Threads share
the work by whole heads, so equal inputs give equal bits with any number of threads.
"""

from typing import Any, NamedTuple

import torch

from rl_core.models.cpu.slots import SharedPromptIndex, shared_prompts
from rl_core.models.tree_layout import TreeLayout


def tree_shared_prompt(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, layout: TreeLayout, scale: float
) -> torch.Tensor:
    """Arguments and result are those of `rl_core.models.tree_attention.tree_sdpa`."""
    out: torch.Tensor = _SharedPrompt.apply(query, key, value, shared_prompts(layout), scale)  # type: ignore[no-untyped-call]
    return out


class _Blocks(NamedTuple):
    """A tensor in slots, as the three calls of the kernel see it."""

    prompts: torch.Tensor  # [B, P, ...]
    responses: torch.Tensor  # [B * N, R, ...]; empty if no response has an input
    by_prompt: torch.Tensor  # The responses once more, as [B, N * R, ...]

    @classmethod
    def of(cls, slots: torch.Tensor, index: SharedPromptIndex) -> "_Blocks":
        (num_prompts, width), rest = index.prompt_shape, slots.shape[1:]
        prompts, responses = slots[: num_prompts * width], slots[num_prompts * width :]
        return cls(
            prompts.view(num_prompts, width, *rest),
            responses.view(*index.response_shape, *rest),
            responses.view(num_prompts, len(responses) // num_prompts, *rest),
        )


class _SharedPrompt(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, index: SharedPromptIndex, scale: float
    ) -> torch.Tensor:
        slots = [states.index_select(0, index.slot_tokens) for states in (query, key, value)]
        q, k, v = (_Blocks.of(states, index) for states in slots)
        causal = _Kernel(is_causal=True, mask=None, scale=scale)
        to_prompt = _Kernel(is_causal=False, mask=index.prompt_mask, scale=scale)
        parts = [causal.forward(q.prompts, k.prompts, v.prompts)]
        if index.has_responses:
            own = causal.forward(q.responses, k.responses, v.responses)
            shared = to_prompt.forward(q.by_prompt, k.prompts, v.prompts)
            parts.append(_merged(own, shared))
        out, lse = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        ctx.save_for_backward(*slots, out, lse)
        ctx.index, ctx.calls = index, (causal, to_prompt)
        return out.index_select(0, index.token_slot)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        index: SharedPromptIndex = ctx.index
        # Unused slots hold copies of a token; without a gradient they add nothing to keys and values.
        slot_grad = grad.index_select(0, index.slot_tokens).index_fill_(0, index.unused_slots, 0.0)
        q, k, v, out, lse, g = (_Blocks.of(part, index) for part in (*ctx.saved_tensors, slot_grad))
        causal, to_prompt = ctx.calls
        dq, dk, dv = causal.backward(g.prompts, q.prompts, k.prompts, v.prompts, out.prompts, lse.prompts)
        parts = [(dq, dk, dv)]
        if index.has_responses:
            own = causal.backward(g.responses, q.responses, k.responses, v.responses, out.responses, lse.responses)
            shared = to_prompt.backward(g.by_prompt, q.by_prompt, k.prompts, v.prompts, out.by_prompt, lse.by_prompt)
            own[0].add_(shared[0])
            dk.add_(shared[1])
            dv.add_(shared[2])
            parts.append(own)
        grads = (torch.cat(pieces).index_select(0, index.token_slot) for pieces in zip(*parts, strict=True))
        return *grads, None, None


class _Kernel(NamedTuple):
    """The kernel that `scaled_dot_product_attention` uses on a CPU; only the kernel itself returns the log-sum-exp.
    States are [rows, slots, heads, D]; results are joined to [rows * slots, heads, D]."""

    is_causal: bool
    mask: torch.Tensor | None
    scale: float

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[slots, H, D] the output, and [slots, H] its log-sum-exp."""
        states = [part.transpose(1, 2) for part in (query, key, value)]
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *states, 0.0, self.is_causal, attn_mask=self._mask(query.dtype), scale=self.scale
        )
        return out.transpose(1, 2).flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)

    def backward(self, *parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradients of query, key and value, from gradient, query, key, value, output and log-sum-exp. The last two
        may be those of more keys."""
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *(part.transpose(1, 2) for part in parts),
            0.0,
            self.is_causal,
            attn_mask=self._mask(parts[0].dtype),
            scale=self.scale,
        )
        dq, dk, dv = (part.transpose(1, 2).flatten(0, 1) for part in grads)
        return dq, dk, dv

    def _mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        return None if self.mask is None else self.mask.to(dtype)


def _merged(
    first: tuple[torch.Tensor, torch.Tensor], second: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to two sets of keys: [slots, H, D] outputs and [slots, H] log-sum-exps of each set -> of both."""
    (first_out, first_lse), (second_out, second_lse) = first, second
    weight = torch.sigmoid(first_lse - second_lse)[..., None]
    out = torch.lerp(second_out.to(weight.dtype), first_out.to(weight.dtype), weight)
    return out.to(first_out.dtype), torch.logaddexp(first_lse, second_lse)
