"""Attention over packed trees without copies of the prompts' keys: the responses of a prompt attend to it
in one call and to themselves in another, and the two results are merged by their log-sum-exps.

A softmax over two sets of keys is the average of the softmaxes over each set, weighted by exp(log-sum-exp) (Rabe and
Staats 2021, arXiv:2112.05682, section 2). The backward pass of flash attention computes the probabilities again from
the scores and the log-sum-exp (Dao et al. 2022, arXiv:2205.14135, algorithm 4). If it is given the merged output and
the merged log-sum-exp, each set's call therefore returns exactly the gradient's part of this set.

Letters as in rl_core.models.tree_attention; N is the largest number of responses of a prompt. Threads share
the work by whole heads, so equal inputs give equal bits with any number of threads.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from rl_core.models.attention_rules import NO_RULES, AttentionRules, Mask
from rl_core.models.cpu.slots import SharedPromptIndex, shared_prompts
from rl_core.models.seen_slots import added, seen_slots
from rl_core.models.tree_layout import TreeLayout


def tree_shared_prompt(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    layout: TreeLayout,
    scale: float,
    rules: AttentionRules = NO_RULES,
) -> torch.Tensor:
    """Arguments and result are those of `rl_core.models.tree_attention.tree_sdpa`, but without a soft cap, which the
    kernel has not."""
    sinks = None if rules.sinks is None else rules.sinks.to(torch.promote_types(query.dtype, torch.float32))
    masks = None if rules.mask is None else _masks(layout, rules.mask)
    out: torch.Tensor = _SharedPrompt.apply(  # type: ignore[no-untyped-call]
        query, key, value, sinks, shared_prompts(layout), scale, masks
    )
    return out


class _Masks(NamedTuple):
    """What is added to scores where a layer masks more than later tokens: 0 or -inf."""

    prompts: torch.Tensor  # [1 or B, 1, P, P] float32
    responses: torch.Tensor  # [1 or B * N, 1, R, R] float32
    shared: torch.Tensor  # [B, 1, N * R, P] float32
    blind: torch.Tensor  # [B, 1, N * R] bool, where a response sees nothing of its prompt


@lru_cache(maxsize=2)
def _masks(layout: TreeLayout, mask: Mask) -> _Masks:
    """Cached, because a model has few kinds of layers."""
    seen, index = seen_slots(layout, mask), shared_prompts(layout)
    (num_prompts, width), (num_responses, response_width) = index.prompt_shape, index.response_shape
    each = num_responses // num_prompts
    own = seen.responses.repeat_interleave(each, dim=0) if len(seen.responses) > 1 else seen.responses
    shared = seen.shared[:, None].expand(-1, each, -1, -1).reshape(num_prompts, 1, each * response_width, width)
    prompts, responses = (added(part[:, None]) for part in (seen.prompts, own))
    return _Masks(prompts, responses, added(shared), blind=~shared.any(dim=-1))


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
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sinks: torch.Tensor | None,
        index: SharedPromptIndex,
        scale: float,
        masks: _Masks | None,
    ) -> torch.Tensor:
        slots = [states.index_select(0, index.slot_tokens) for states in (query, key, value)]
        q, k, v = (_Blocks.of(states, index) for states in slots)
        prompts, responses, to_prompt = _kernels(index, masks, scale)
        parts = [prompts.forward(q.prompts, k.prompts, v.prompts)]
        if index.has_responses:
            own = responses.forward(q.responses, k.responses, v.responses)
            shared = to_prompt.forward(q.by_prompt, k.prompts, v.prompts)
            parts.append(_merged(own, shared))
        out, lse = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        if sinks is not None:  # One more key, whose value is 0: the second set of keys is this one.
            out, lse = _merged((out, lse), (torch.zeros_like(out), sinks.to(lse.dtype).expand_as(lse)))
        ctx.save_for_backward(*slots, out, lse, *([] if sinks is None else [sinks]))
        ctx.index, ctx.calls = index, (prompts, responses, to_prompt)
        return out.index_select(0, index.token_slot)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        index: SharedPromptIndex = ctx.index
        # Unused slots hold copies of a token; without a gradient they add nothing to keys and values.
        slot_grad = grad.index_select(0, index.slot_tokens).index_fill_(0, index.unused_slots, 0.0)
        *saved, sinks = ctx.saved_tensors if ctx.needs_input_grad[3] else (*ctx.saved_tensors[:5], None)
        q, k, v, out, lse, g = (_Blocks.of(part, index) for part in (*saved, slot_grad))
        prompts, responses, to_prompt = ctx.calls
        dq, dk, dv = prompts.backward(g.prompts, q.prompts, k.prompts, v.prompts, out.prompts, lse.prompts)
        parts = [(dq, dk, dv)]
        if index.has_responses:
            own = responses.backward(g.responses, q.responses, k.responses, v.responses, out.responses, lse.responses)
            shared = to_prompt.backward(g.by_prompt, q.by_prompt, k.prompts, v.prompts, out.by_prompt, lse.by_prompt)
            own[0].add_(shared[0])
            dk.add_(shared[1])
            dv.add_(shared[2])
            parts.append(own)
        grads = (torch.cat(pieces).index_select(0, index.token_slot) for pieces in zip(*parts, strict=True))
        return *grads, None if sinks is None else _sink_gradient(sinks, slot_grad, *saved[3:]), None, None, None


def _sink_gradient(sinks: torch.Tensor, grad: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """[H]. As for any score, it is weight * (grad * (value - out)), where the value is 0."""
    weights = (sinks - lse).exp()
    return -(weights * (grad * out).sum(dim=-1)).sum(dim=0).to(sinks.dtype)


def _kernels(index: SharedPromptIndex, masks: _Masks | None, scale: float) -> "tuple[_Kernel, _Kernel, _Kernel]":
    """For prompts, responses with themselves, and responses with their prompts."""
    if masks is None:
        causal = _Kernel(is_causal=True, mask=None, scale=scale)
        return causal, causal, _Kernel(is_causal=False, mask=index.prompt_mask, scale=scale)
    prompts, responses = (_Kernel(is_causal=False, mask=mask, scale=scale) for mask in masks[:2])
    return prompts, responses, _Kernel(is_causal=False, mask=masks.shared, scale=scale, blind=masks.blind)


class _Kernel(NamedTuple):
    """The kernel that `scaled_dot_product_attention` uses on a CPU; only the kernel itself returns the log-sum-exp.
    States are [rows, slots, heads, D]; results are joined to [rows * slots, heads, D]."""

    is_causal: bool
    mask: torch.Tensor | None
    scale: float
    blind: torch.Tensor | None = None  # The queries that see no key

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[slots, H, D] the output, and [slots, H] its log-sum-exp."""
        states = [part.transpose(1, 2) for part in (query, key, value)]
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *states, 0.0, self.is_causal, attn_mask=self._mask(query.dtype), scale=self.scale
        )
        if self.blind is not None:  # for which the kernel says 0
            lse = lse.masked_fill(self.blind, float("-inf"))
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
