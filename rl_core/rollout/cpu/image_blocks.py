"""Attention in which the tokens of an image see each other, the later ones too, as in Gemma 3. vLLM says where these
images are, but its attention for a CPU lets every token see only those before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)

_build = CPUAttentionMetadataBuilder.build
_forward = CPUAttentionBackendImpl.forward


def use_image_blocks() -> None:
    """Attend so in all engines of this process, from now on."""
    CPUAttentionMetadataBuilder.build = build
    CPUAttentionBackendImpl.forward = forward


class Part(NamedTuple):
    """Tokens of one image that a forward pass computes: their rows in the pass, the number of the request, and how many
    tokens of it they see: all up to the image's last one."""

    rows: range
    request: int
    seen: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """The images of a forward pass as requests of their own, with the arguments of vLLM's kernel."""

    rows: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    scheduler_metadata: torch.Tensor


def build(
    self: CPUAttentionMetadataBuilder,
    common_prefix_len: int,
    common_attn_metadata: CommonAttentionMetadata,
    fast_build: bool = False,
) -> CPUAttentionMetadata:
    """As `CPUAttentionMetadataBuilder.build`, with the images in `mm_prefix_range`. vLLM's own backends call it so, and
    its Gemma 4 takes it from the layers without a window, in which images are like text."""
    metadata = _build(self, common_prefix_len, common_attn_metadata, fast_build)
    parts = image_parts(common_attn_metadata)
    check_lengths(parts, window=self.window_size)
    metadata.mm_prefix_range = _blocks(self, metadata, parts) if parts else None
    return metadata


def image_parts(common: CommonAttentionMetadata) -> list[Part]:
    """What a forward pass computes of images whose tokens see each other. A request whose prompt lies in the cache in
    part computes the rest of it."""
    found = []
    starts = common.query_start_loc_cpu.tolist()
    for request, images in (common.mm_req_doc_ranges or {}).items():
        computed = starts[request + 1] - starts[request]
        before = int(common.seq_lens[request]) - computed
        for first, last in images:
            begin, end = max(first - before, 0), min(last + 1 - before, computed)
            if begin < end:
                rows = range(starts[request] + begin, starts[request] + end)
                found.append(Part(rows, request, before + end))
    return found


def check_lengths(parts: Sequence[Part], *, window: int) -> None:
    """Raises ValueError for an image with more tokens than layers with this window see, -1 for all: without a causal
    mask the kernel limits what is seen of later tokens too, and models do not."""
    longest = max((len(part.rows) for part in parts), default=0)
    if 0 <= window < longest:
        raise ValueError(
            f"an image has {longest} tokens that see each other, more than the {window} of a layer's window, which "
            "vLLM's kernel for a CPU then does not show: let the model's processor give an image fewer tokens "
            "(max_soft_tokens of its processor_config.json), or take a GPU"
        )


def _blocks(builder: CPUAttentionMetadataBuilder, metadata: CPUAttentionMetadata, parts: list[Part]) -> Blocks:
    bounds = torch.tensor([0, *(len(part.rows) for part in parts)]).cumsum(0).to(metadata.query_start_loc)
    lengths = torch.tensor([part.seen for part in parts]).to(metadata.seq_lens)
    scheduled = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(parts),
        num_heads=builder.num_heads,
        num_kv_heads=builder.num_kv_heads,
        head_dim=builder.head_dim,
        seq_lens=lengths,
        dtype=builder.dtype,
        query_start_loc=bounds,
        causal=False,
        sliding_window_size=builder.window_size,
        isa=builder.isa,
        enable_kv_split=False,
        kv_cache_dtype=builder.kv_cache_dtype,
    )
    return Blocks(
        rows=torch.tensor([row for part in parts for row in part.rows]),
        query_start_loc=bounds,
        seq_lens=lengths,
        block_table=metadata.block_table[[part.request for part in parts]],
        scheduler_metadata=scheduled,
    )


def forward(
    self: CPUAttentionBackendImpl,
    layer: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kv_cache: torch.Tensor,
    attn_metadata: CPUAttentionMetadata | None,
    output: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """As `CPUAttentionBackendImpl.forward`, and the rows of images once more, without a causal mask."""
    _forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)
    blocks: Blocks | None = getattr(attn_metadata, "mm_prefix_range", None)
    if blocks is None:
        return output
    caches = kv_cache.view(*kv_cache.shape[:2], 2 * kv_cache.shape[2], -1).chunk(2, dim=2)
    rows = torch.empty_like(output[: len(blocks.rows)])
    ops.cpu_attention_with_kv_cache(
        query=query[blocks.rows],
        key_cache=caches[0],
        value_cache=caches[1],
        output=rows,
        query_start_loc=blocks.query_start_loc,
        seq_lens=blocks.seq_lens,
        scale=self.scale,
        causal=False,
        alibi_slopes=self.alibi_slopes,
        sliding_window=self.sliding_window,
        block_table=blocks.block_table,
        softcap=self.logits_soft_cap,
        scheduler_metadata=blocks.scheduler_metadata,
        s_aux=self.sinks,
        k_scale=layer._k_scale_float,
        v_scale=layer._v_scale_float,
        kv_cache_dtype=self.kv_cache_dtype,
    )
    output[blocks.rows] = rows
    return output
