"""The index tensors that the vision tower of a Qwen family takes, computed on the host and kept for the next forward
passes over equal images.

transformers computes them in every forward pass, with a Python loop over the images; on a GPU this reads the sizes of
the images and of the longest segment back from the device, for which the host has to wait. Its vision towers take the
tensors as keyword arguments instead, which a hook adds here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from rl_core.families.vision import moved

Grids = tuple[tuple[int, ...], ...]

# Attention that splits a sequence by lengths known to the host; kernels read the bounds on the device.
_BOUNDS_ON_HOST: Final = ("eager", "sdpa", "sdpa_in_flash_form")
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


def add_vision_index(tower: nn.Module) -> None:
    """Give the tower its index tensors."""
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
        name: moved(value, tower.device)
        if isinstance(value, torch.Tensor) and not (tower.bounds_on_host and name in _BOUNDS)
        else value
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
