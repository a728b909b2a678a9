"""Pixels are made once an image and forgotten on request."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rl_core.models.loading import load_processor
from rl_core.models.pixels import PixelCache
from tests.rl_core.models.builders import RenderedImages


def test_an_image_is_made_once_until_cleared(model_folder: Callable[[str], Path]) -> None:
    images = RenderedImages()
    cache = PixelCache(load_processor(model_folder("qwen2_5_vl")), images)
    first = cache.get(["square-1", "wide-1", "square-1"])
    assert first[0] is first[2]
    assert cache.get(["wide-1"])[0] is first[1]
    assert images.rendered == ["square-1", "wide-1"]
    cache.clear()
    assert torch.equal(cache.get(["wide-1"])[0].values, first[1].values)
    assert images.rendered == ["square-1", "wide-1", "wide-1"]


def test_pixels_do_not_depend_on_what_they_were_made_with(model_folder: Callable[[str], Path]) -> None:
    processor = load_processor(model_folder("qwen3_vl"))
    together = PixelCache(processor, RenderedImages()).get(["square-1", "tall-1", "square-2"])
    alone = PixelCache(processor, RenderedImages()).get(["square-2"])[0]
    assert together[2].grid_thw == alone.grid_thw == (1, 6, 6)
    assert torch.equal(together[2].values, alone.values)


def test_a_text_model_has_no_images(model_folder: Callable[[str], Path]) -> None:
    cache = PixelCache(load_processor(model_folder("llama")), RenderedImages())
    assert cache.get([]) == []
    with pytest.raises(TypeError, match="square-1"):
        cache.get(["square-1"])
