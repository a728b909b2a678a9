"""The vision towers: attention to images and windows of equal size in one call, instead of one call for each image; and
the index tensors that a tower takes, computed on the host and kept for the next forward passes over equal images.

transformers computes them in every forward pass, with a Python loop over the images; on a GPU this reads the sizes of
the images and of the longest segment back from the device, for which the host has to wait. Its vision towers take the
tensors as keyword arguments instead, which a hook adds here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from rl_core.models.attention_rules import refuse_others

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name; for others
# its vision towers loop over the images.
VISION_SDPA = "sdpa_in_flash_form"

AttentionFunction = Callable[..., tuple[torch.Tensor, None]]
Attend = Callable[..., torch.Tensor]
"""`scaled_dot_product_attention`, or a function that computes the same."""


def vision_attention(attend: Attend) -> AttentionFunction:
    """Full attention within each segment of a packed sequence, by `attend`, with the signature that transformers
    calls."""

    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: None,
        *,
        scaling: float,
        cu_seq_lens_q: torch.Tensor,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, H, S, D], all segments concatenated -> [1, S, H, D]; `cu_seq_lens_q`: [segments + 1] int32."""
        check_vision_arguments(module, attention_mask, others)
        states = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
        return attend_within(cu_seq_lens_q, states, attend=attend, scale=scaling)[None], None

    return attention


def check_vision_arguments(module: nn.Module, mask: torch.Tensor | None, others: Mapping[str, Any]) -> None:
    """Raise ValueError if a layer of a vision tower asks for more than full attention within its segments."""
    refuse_others(module, {**others, "attention_mask": mask}, known=_OF_SEGMENTS)
    for name in ("dropout", "is_causal"):
        if others.get(name):
            raise ValueError(f"{type(module).__name__} asks for {name}, which attention in a vision tower has not")


_OF_SEGMENTS = ("cu_seq_lens_k", "max_length_q", "max_length_k", "dropout", "is_causal", "tree_layout")
"""Arguments for full attention within segments of equal queries and keys, and those of the language model."""


def attend_within(
    bounds: torch.Tensor, states: Sequence[torch.Tensor], *, attend: Attend, scale: float
) -> torch.Tensor:
    """Full attention within segments with these bounds, [segments + 1] int32, in one call for all segments of the same
    length: query, key and value, each [S, H, D] -> the same."""

    def of_equal_length(length: int, parts: Iterable[torch.Tensor]) -> torch.Tensor:
        query, key, value = (part.view(-1, length, *part.shape[1:]).transpose(1, 2) for part in parts)
        return attend(query, key, value, scale=scale).transpose(1, 2).flatten(0, 1)

    lengths = tuple((bounds[1:] - bounds[:-1]).tolist())
    if len(set(lengths)) == 1:
        return of_equal_length(lengths[0], states)
    buckets = _buckets(lengths, states[0].device)
    outputs = [
        of_equal_length(length, (tensor.index_select(0, tokens) for tensor in states)) for length, tokens in buckets
    ]
    tokens = torch.cat([tokens for _, tokens in buckets])
    return torch.empty_like(states[0]).index_copy(0, tokens, torch.cat(outputs))


@lru_cache(maxsize=8)
def _buckets(lengths: tuple[int, ...], device: torch.device) -> list[tuple[int, torch.Tensor]]:
    """Segment length -> the tokens of all segments of this length. Cached, because every layer needs the same."""
    tokens: dict[int, list[torch.Tensor]] = {}
    start = 0
    for length in lengths:
        tokens.setdefault(length, []).append(torch.arange(start, start + length, device=device))
        start += length
    return [(length, torch.cat(parts)) for length, parts in tokens.items()]


AttentionInterface.register(VISION_SDPA, vision_attention(scaled_dot_product_attention))


Grids = tuple[tuple[int, ...], ...]

# Attention that splits a sequence by lengths known to the host; kernels read the bounds on the device.
_BOUNDS_ON_HOST = ("eager", "sdpa", VISION_SDPA)
_BOUNDS = ("cu_seqlens", "cu_window_seqlens")


class _WindowSizes(NamedTuple):
    """Qwen2.5-VL: most layers attend within windows; sizes in pixels."""

    window_size: int
    patch_size: int


class _Interpolation(NamedTuple):
    """Qwen3-VL: learned positions on a square grid, interpolated to the size of each image."""

    num_grid_per_side: int
    mode: str
    align_corners: bool


class _TowerFacts(NamedTuple):
    """What the index tensors depend on besides the images. It holds no module, which a cache would keep alive."""

    merge_size: int
    windows: _WindowSizes | None
    interpolation: _Interpolation | None
    bounds_on_host: bool
    device: torch.device

    @classmethod
    def of(cls, tower: Any) -> "_TowerFacts":
        has_windows, has_positions = hasattr(tower, "fullatt_block_indexes"), hasattr(tower, "num_grid_per_side")
        interpolation = ("num_grid_per_side", "interpolation_mode", "interpolation_align_corners")
        return cls(
            merge_size=tower.spatial_merge_size,
            windows=_WindowSizes(tower.window_size, tower.patch_size) if has_windows else None,
            interpolation=_Interpolation(*(getattr(tower, name) for name in interpolation)) if has_positions else None,
            bounds_on_host=tower.config._attn_implementation in _BOUNDS_ON_HOST,
            device=tower.device,
        )


def add_vision_index(model: PreTrainedModel) -> None:
    """A model without a vision tower stays as it is."""
    tower = getattr(model.base_model, "visual", None)
    if tower is not None:
        tower.register_forward_pre_hook(_add_index, with_kwargs=True)


def _add_index(tower: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook. `grid_thw`: [images, 3] on the host."""
    grids = tuple(tuple(grid) for grid in kwargs["grid_thw"].tolist())
    return args, kwargs | dict(vision_index(grids, _TowerFacts.of(tower)))


@lru_cache(maxsize=16)
def vision_index(grids: Grids, tower: _TowerFacts) -> Mapping[str, Any]:
    """The keyword arguments that transformers' forward method would compute: tensors, and lengths as int."""
    index = _bounds_and_positions(torch.tensor(grids, dtype=torch.int64), tower)
    return {
        name: value if tower.bounds_on_host and name in _BOUNDS else _moved(value, tower.device)
        for name, value in index.items()
    }


def _bounds_and_positions(grids: torch.Tensor, tower: _TowerFacts) -> dict[str, Any]:
    bounds = get_vision_cu_seqlens(grids)
    index = {
        "position_ids": get_vision_position_ids(grids, tower.merge_size),
        "cu_seqlens": bounds,
        "max_seqlen": int(bounds.diff().max()),
    }
    if tower.windows is not None:
        order, windows = get_vision_window_index(grids, spatial_merge_size=tower.merge_size, **tower.windows._asdict())
        longest = int(windows.diff().max())
        index |= {"window_index": order, "cu_window_seqlens": windows, "max_window_seqlen": longest}
    if tower.interpolation is not None:
        places, weights = get_vision_interpolation_indices_and_weights(
            grids, spatial_merge_size=tower.merge_size, **tower.interpolation._asdict()
        )
        index |= {"interp_indices": places, "interp_weights": weights}
    return index


def _moved(value: Any, device: torch.device) -> Any:
    if not isinstance(value, torch.Tensor) or device.type != "cuda":
        return value
    return value.pin_memory().to(device, non_blocking=True)
