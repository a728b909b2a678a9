"""Layers that vLLM uses on a CPU in place of its own. Importing this module before an engine starts registers them.

vLLM computes on a CPU in eager mode what it would otherwise compile or leave to a kernel of a GPU: its rotation of
queries and keys gathers the same cosines again in each layer, its vision towers call the attention once for each image,
and the pixels of all images are copied three times before them.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.layers.fusion.mm_input_norm import FusedMMInputNorm
from vllm.model_executor.layers.rotary_embedding.mrope import MRotaryEmbedding, apply_interleaved_rope
from vllm.platforms import current_platform

from rl_core.models.vision_attention import attend_within


@MRotaryEmbedding.register_oot
class RememberingRotaryEmbedding(MRotaryEmbedding):  # type: ignore[misc]  # vLLM's layers have no types
    """Multimodal rotary positions (Bai et al. 2025, arXiv:2502.13923, section 2.1.3) whose cosines and sines are looked
    up once for all layers of a forward pass."""

    _last: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def forward_cpu(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None, offsets: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Rotated queries [T, heads * D] and keys of tokens with [3, T] positions of time, height and width; [T] is
        left to vLLM."""
        if positions.ndim == 1 or self.rotary_dim != self.head_size or key is None:
            rotated: tuple[torch.Tensor, torch.Tensor | None] = self.forward_native(positions, query, key, offsets)
            return rotated
        cos, sin = self._cos_and_sin(positions, query)
        return self._rotated(query, cos, sin), self._rotated(key, cos, sin)

    def _rotated(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = states.view(len(states), -1, self.head_size)
        rotated: torch.Tensor = self.apply_rotary_emb.forward_native(heads, cos, sin)
        return rotated.view(states.shape)

    def _cos_and_sin(self, positions: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[T, D / 2] each. The positions are compared by value, because vLLM writes new ones into the same memory."""
        last = self._last
        if last is not None and last[1].dtype == query.dtype and torch.equal(last[0], positions):
            return last[1], last[2]
        found = self._match_cos_sin_cache_dtype(query)[positions]
        cos, sin = (self._mixed(part) for part in found.chunk(2, dim=-1))
        self._last = (positions.clone(), cos, sin)
        return cos, sin

    def _mixed(self, states: torch.Tensor) -> torch.Tensor:
        """[3, T, D / 2] -> [T, D / 2]: each frequency belongs to one of the three positions."""
        if self.mrope_interleaved:
            mixed: torch.Tensor = apply_interleaved_rope(states, self.mrope_section)
            return mixed
        parts = torch.split(states, self.mrope_section, dim=-1)
        return torch.cat([part[index] for index, part in enumerate(parts)], dim=-1)


@MMEncoderAttention.register_oot
class BatchedEncoderAttention(MMEncoderAttention):  # type: ignore[misc]  # vLLM's layers have no types
    """Attention of a vision tower with one call of vLLM's kernel for all images and windows of equal size."""

    def forward_cpu(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: torch.Tensor | None = None,
        sequence_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention within the segments with these bounds, [segments + 1]: query, key and value [1, S, heads * D] or
        [1, S, heads, D] -> the same."""
        is_alike = query.shape == key.shape and len(query) == 1
        if cu_seqlens is None or not is_alike or current_platform.is_zen_cpu():
            ordinary: torch.Tensor = self.forward_native(query, key, value, cu_seqlens, max_seqlen, sequence_lengths)
            return ordinary
        states = [part.view(-1, self.num_heads, self.head_size) for part in (query, key, value)]
        out = attend_within(cu_seqlens, states, attend=scaled_dot_product_attention, scale=self.scale)
        return out.reshape(query.shape)


@FusedMMInputNorm.register_oot
class InPlaceInputNorm(FusedMMInputNorm):  # type: ignore[misc]  # vLLM's layers have no types
    """Normalises pixels in one new tensor. To take new memory from the system costs a CPU more time than to compute."""

    def forward_cpu(self, pixel_values: torch.Tensor, visual_dtype: torch.dtype) -> torch.Tensor:
        """[N, C] uint8 pixels of patches -> [N, C] `visual_dtype`, computed in float32."""
        by_channel = pixel_values.view(len(pixel_values), self.channel, -1).to(torch.float32, copy=True)
        by_channel.mul_(self.weight[:, None]).add_(self.bias[:, None])
        return by_channel.view(pixel_values.shape).to(visual_dtype)
