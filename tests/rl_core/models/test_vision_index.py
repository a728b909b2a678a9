"""The index tensors of a vision tower, made once, are those that transformers computes in every forward pass."""

from collections.abc import Callable

import pytest
import torch
from transformers import AutoModelForImageTextToText

from rl_core.families.patch_grid_tower import add_vision_index
from tests.rl_core.models.builders import PATCH_GRIDS, roughen

GRIDS = torch.tensor([[1, 6, 6], [1, 4, 12], [2, 6, 4]])


@pytest.mark.parametrize("implementation", ["sdpa", "sdpa_in_flash_form"])
@pytest.mark.parametrize("family", PATCH_GRIDS)
def test_the_tower_computes_the_same_with_them(family, implementation, model_folder, monkeypatch):
    model = AutoModelForImageTextToText.from_pretrained(model_folder(family), dtype=torch.float32)
    roughen(model)
    model.set_attn_implementation({"": "sdpa", "vision_config": implementation})
    tower = model.base_model.visual
    width = tower.config.in_channels * tower.config.temporal_patch_size * tower.config.patch_size**2
    patches = torch.randn(int(GRIDS.prod(-1).sum()), width, generator=torch.Generator().manual_seed(0))
    expected = tower(patches, grid_thw=GRIDS).pooler_output
    add_vision_index(tower)
    module = __import__(type(tower).__module__, fromlist=["_"])
    for name in ("get_vision_position_ids", "get_vision_window_index", "get_vision_interpolation_indices_and_weights"):
        function = getattr(module, name, None)
        if function is not None:
            monkeypatch.setattr(module, name, _only_given(function))
    assert torch.equal(tower(patches, grid_thw=GRIDS).pooler_output, expected)


def _only_given(function: Callable[..., object]) -> Callable[..., object]:
    """The function, which must find its result among the keyword arguments of the forward method."""

    def wrapped(grid_thw: torch.Tensor, *args: object, kwargs: dict[str, object], **options: object) -> object:
        before = dict(kwargs)
        result = function(None, *args, kwargs=kwargs, **options)  # without sizes it could compute nothing
        assert set(before) - set(kwargs)
        return result

    return wrapped
