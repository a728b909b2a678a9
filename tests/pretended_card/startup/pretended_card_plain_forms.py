"""Kernels that torch and vLLM have for a card alone, in their plain form.

Each function takes the arguments of the operation after which it is named and returns its results; None stands for what
only its backward pass reads, which is computed here from the inputs once more.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

Results = tuple[torch.Tensor | None, ...]


def _weights(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, *, causal: bool, scale: float
) -> torch.Tensor:
    """[..., H, Q, D], [..., H, K, D] -> [..., H, Q, K]. The causal mask is aligned at the last token, as in flash
    attention."""
    scores = query @ key.transpose(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        length, keys = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(length, keys, dtype=torch.bool).triu(keys - length + 1), float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0)


class _Attention:
    """[..., H, Q, D] and twice [..., G, K, D]: attention and its gradients, computed in float32."""

    def __init__(
        self, query: Any, key: Any, value: Any, *, bias: Any = None, causal: bool, scale: float | None
    ) -> None:
        self._repeats = query.shape[-3] // key.shape[-3]
        self._scale = scale if scale is not None else query.shape[-1] ** -0.5
        self._dtype = query.dtype
        self._query = query.float()
        self._key, self._value = (part.float().repeat_interleave(self._repeats, dim=-3) for part in (key, value))
        self._weights = _weights(self._query, self._key, bias, causal=causal, scale=self._scale)

    def output(self) -> torch.Tensor:
        return (self._weights @ self._value).to(self._dtype)

    def gradients(self, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        of_weights = grad.float() @ self._value.transpose(-1, -2)
        of_scores = self._weights * (of_weights - (of_weights * self._weights).sum(-1, keepdim=True)) * self._scale
        of_value = self._weights.transpose(-1, -2) @ grad.float()
        of_key = of_scores.transpose(-1, -2) @ self._query
        of_query = of_scores @ self._key
        return tuple(part.to(self._dtype) for part in (of_query, self._for_groups(of_key), self._for_groups(of_value)))

    def _for_groups(self, grad: torch.Tensor) -> torch.Tensor:
        return grad.unflatten(-3, (-1, self._repeats)).sum(-3)


def _efficient(query: Any, key: Any, value: Any, bias: Any, *rest: Any, scale: Any = None) -> Results:
    _lse, _dropout, causal = (*rest, *[False] * 3)[:3]
    return (_Attention(query, key, value, bias=bias, causal=causal, scale=scale).output(), None, None, None)


def _efficient_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, *rest: Any, scale: Any = None
) -> Results:
    *_out_lse_seed_offset_dropout_mask, causal = (*rest, *[False] * 7)[:7]
    return (*_Attention(query, key, value, bias=bias, causal=causal, scale=scale).gradients(grad), None)


def _flash(query: Any, key: Any, value: Any, *rest: Any, scale: Any = None) -> Results:
    _dropout, causal = (*rest, *[False] * 2)[:2]
    return (_Attention(query, key, value, causal=causal, scale=scale).output(), *[None] * 8)


def _flash_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any, scale: Any = None) -> Results:
    *_out_lse_cum_and_max_lengths_dropout, causal = rest[:8]
    return _Attention(query, key, value, causal=causal, scale=scale).gradients(grad)


def _sequences(
    query: Any, key: Any, value: Any, cum_q: Any, cum_k: Any, *, causal: bool, scale: Any
) -> Iterator[tuple[slice, slice, _Attention]]:
    """[T, H, D] and twice [S, G, D]: each sequence of queries, the keys of the same number, and their attention."""
    bounds_q, bounds_k = cum_q.tolist(), cum_k.tolist()
    for at in range(len(bounds_q) - 1):
        of_q, of_k = slice(bounds_q[at], bounds_q[at + 1]), slice(bounds_k[at], bounds_k[at + 1])
        parts = (part[where].transpose(0, 1) for part, where in ((query, of_q), (key, of_k), (value, of_k)))
        yield of_q, of_k, _Attention(*parts, causal=causal, scale=scale)


def _varlen(
    query: Any, key: Any, value: Any, cum_q: Any, cum_k: Any, *rest: Any, scale: Any = None, **_options: Any
) -> Results:
    if cum_q is None:  # called by the padded form, which is computed as a whole
        return (None,) * 5
    _max_q, _max_k, _dropout, causal = rest[:4]
    output = torch.zeros_like(query)
    for of_q, _, attention in _sequences(query, key, value, cum_q, cum_k, causal=causal, scale=scale):
        output[of_q] = attention.output().transpose(0, 1)
    return (output, *[None] * 4)


def _varlen_backward(
    grad: Any, query: Any, key: Any, value: Any, *rest: Any, scale: Any = None, **_options: Any
) -> Results:
    _out, _lse, cum_q, cum_k, _max_q, _max_k, _dropout, causal = rest[:8]
    if cum_q is None:
        return (None,) * 3
    of_query, of_key, of_value = (torch.zeros_like(part) for part in (query, key, value))
    for of_q, of_k, attention in _sequences(query, key, value, cum_q, cum_k, causal=causal, scale=scale):
        query_part, key_part, value_part = attention.gradients(grad[of_q].transpose(0, 1))
        of_query[of_q] += query_part.transpose(0, 1)
        of_key[of_k] += key_part.transpose(0, 1)
        of_value[of_k] += value_part.transpose(0, 1)
    return of_query, of_key, of_value


def _mm_in_another_format(one: Any, other: Any, out_dtype: torch.dtype) -> Results:
    return (one.to(out_dtype) @ other.to(out_dtype),)


def _rms_norm(result: Any, states: Any, weight: Any, epsilon: float) -> None:
    normed = states.float() * torch.rsqrt(states.float().pow(2).mean(-1, keepdim=True) + epsilon)
    result.copy_(normed.to(states.dtype) * weight if weight is not None else normed)


def _fused_add_rms_norm(states: Any, residual: Any, weight: Any, epsilon: float) -> None:
    residual.add_(states)
    _rms_norm(states, residual, weight, epsilon)


def _silu_and_mul(result: Any, states: Any) -> None:
    gate, up = states.chunk(2, dim=-1)
    result.copy_(torch.nn.functional.silu(gate.float()).to(states.dtype) * up)


def _part_of_embedding(
    rows: Any, ids: Any, weight: Any, start: int, end: int, padding: int, added_start: int, added_end: int
) -> None:
    """The rows [T, D] of ids [T] of which a worker has the embeddings, in its weight [V, D]: those from `start` to
    `end`, padding, and added ones. Zero for the others."""
    is_first, is_added = (ids >= start) & (ids < end), (ids >= added_start) & (ids < added_end)
    places = torch.where(is_first, ids - start, ids - added_start + end - start + padding)
    is_own = is_first | is_added
    rows.copy_(weight[places.where(is_own, 0).long()].where(is_own[:, None], 0.0))


def _reshape_and_cache(
    key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any, *_formats_and_scales: Any
) -> None:
    """[T, G, D] into caches [blocks, block, G, D], at slots [T] of which negative ones are no tokens."""
    tokens = (slots >= 0).nonzero().flatten()
    block, at = slots[tokens] // key_cache.shape[1], slots[tokens] % key_cache.shape[1]
    key_cache[block, at], value_cache[block, at] = key[tokens], value[tokens]


def _with_cache(
    query: Any, key: Any, value: Any, out: Any, *, cum_q: Any, used: Any, pages: Any, causal: bool, scale: float
) -> None:
    """Queries [T, H, D] of sequences, and for each the pages of its keys and values in caches [blocks, block, G, D]."""
    for number, (start, end) in enumerate(pairwise(cum_q.tolist())):
        if end > start:
            length = int(used[number])
            own = pages[number, : -(-length // key.shape[1])].long()
            keys, values = (part[own].flatten(0, 1)[:length] for part in (key, value))
            parts = (part.transpose(0, 1) for part in (query[start:end], keys, values))
            out[start:end] = _Attention(*parts, causal=causal, scale=scale).output().transpose(0, 1)


def _flash_with_cache(query: Any, key: Any, value: Any, *rest: Any) -> Results:
    """vLLM's FlashAttention 3, with keys and values in pages or, in a vision tower, beside the queries."""
    out, cum_q, cum_k, used, pages, scale, causal = (rest[at] for at in (3, 4, 5, 8, 11, 20, 21))
    if pages is not None:
        _with_cache(query, key, value, out, cum_q=cum_q, used=used, pages=pages, causal=causal, scale=scale)
        return (None,) * 4
    for of_q, _, attention in _sequences(query, key, value, cum_q, cum_k, causal=causal, scale=scale):
        out[of_q] = attention.output().transpose(0, 1)
    return (None,) * 4


def _unified_attention(_result: None, q: Any, k: Any, v: Any, out: Any, **options: Any) -> None:
    cum_q, used, pages = (options[name] for name in ("cu_seqlens_q", "seqused_k", "block_table"))
    scale, causal = options["softmax_scale"], options["causal"]
    _with_cache(q, k, v, out, cum_q=cum_q, used=used, pages=pages, causal=causal, scale=scale)


def _context_attention(_result: None, q: Any, k: Any, v: Any, o: Any, **options: Any) -> None:
    starts, lengths = options["b_start_loc"], options["b_seq_len"]
    bounds = torch.cat([starts[: len(lengths)], starts[len(lengths) - 1 :][:1] + lengths[-1:]])
    causal, scale = options.get("is_causal", True), options.get("softmax_scale")
    for of_q, _, attention in _sequences(q, k, v, bounds, bounds, causal=causal, scale=scale):
        o[of_q] = attention.output().transpose(0, 1)


def _mrope(
    _result: Any, q: Any, k: Any, cos: Any, sin: Any, sections: list[int], head_size: int, *_layout: Any
) -> None:
    """Rotates [T, H x D] in place by angles [3, T, D / 2]; each section of a head has those of one axis."""
    cos, sin = (
        torch.cat([part[axis] for axis, part in enumerate(angles.split(sections, dim=-1))], dim=-1)
        for angles in (cos, sin)
    )
    for states in (q, k):
        _rotate(states.view(len(states), -1, head_size), cos[:, None], sin[:, None])


def _rotary(result: Any, x: Any, cos: Any, sin: Any, **_options: Any) -> None:
    """Rotates the first numbers of each head of [B, T, H, D] by the angles [T, R / 2]."""
    result.copy_(x)
    _rotate(result, cos[: x.shape[1], None], sin[: x.shape[1], None])


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    half = cos.shape[-1]
    first, second = heads[..., :half].clone(), heads[..., half : 2 * half].clone()
    heads[..., :half] = first * cos - second * sin
    heads[..., half : 2 * half] = second * cos + first * sin


# Functions of vLLM around kernels of Triton that would take the interpreter minutes, by their module. The first
# argument of a plain form is what the function has returned.
PLAIN_FUNCTIONS: dict[str, tuple[str, Callable[..., None]]] = {
    "vllm.model_executor.layers.rotary_embedding.mrope": ("triton_mrope", _mrope),
    "vllm.v1.attention.ops.triton_prefill_attention": ("context_attention_fwd", _context_attention),
    "vllm.v1.attention.ops.triton_reshape_and_cache_flash": (
        "triton_reshape_and_cache_flash",
        lambda _result, *args: _reshape_and_cache(*args),
    ),
    "vllm.v1.attention.ops.triton_unified_attention": ("unified_attention", _unified_attention),
    "vllm.vllm_flash_attn.ops.triton.rotary": ("apply_rotary", _rotary),
}

PLAIN_FORMS: dict[str, Callable[..., Results | None]] = {
    "aten::_scaled_dot_product_efficient_attention": _efficient,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_flash_attention_forward": _varlen,
    "aten::_flash_attention_backward": _varlen_backward,
    "aten::mm.dtype": _mm_in_another_format,
    "_C::rms_norm": _rms_norm,
    "_C::fused_add_rms_norm": _fused_add_rms_norm,
    "_C::silu_and_mul": _silu_and_mul,
    "_C::vocab_parallel_embedding": _part_of_embedding,
    "_C_cache_ops::reshape_and_cache_flash": _reshape_and_cache,
    "_vllm_fa3_C::fwd": _flash_with_cache,
}
