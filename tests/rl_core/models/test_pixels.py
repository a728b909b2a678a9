"""Pixels are made once an image, are those of the processor, and are forgotten within a number of bytes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from PIL import Image

from rl_core.families.vision import MediaInputs
from rl_core.models.loading import load_processor
from rl_core.models.pixels import PixelCache
from tests.rl_core.busy import threads_of_torch
from tests.rl_core.models.builders import VISION_FAMILIES, RenderedImages


def patches(found: MediaInputs) -> torch.Tensor:
    return found.tensors["pixel_values"]


SQUARES = [f"square-{number}" for number in range(40)]


def test_an_image_is_made_once_until_cleared(model_folder):
    images = RenderedImages()
    cache = PixelCache(model_folder("qwen2_5_vl"), images)
    first = cache.get(["square-1", "wide-1", "square-1"])
    assert first[0] is first[2]
    assert cache.get(["wide-1"])[0] is first[1]
    assert images.rendered == ["square-1", "wide-1"]
    cache.clear()
    assert torch.equal(patches(cache.get(["wide-1"])[0]), patches(first[1]))
    assert images.rendered == ["square-1", "wide-1", "wide-1"]


def test_threads_in_the_background_compute_alone_and_the_others_as_before(model_folder):
    """The update would slow down if the background had teams of threads too."""
    with threads_of_torch(2):
        cache = PixelCache(model_folder("qwen2_5_vl"), RenderedImages())
        assert {cache._threads.submit(torch.get_num_threads).result() for _ in range(20)} == {1}
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 2


def test_prepared_pixels_are_not_computed_again(model_folder):
    images = RenderedImages()
    cache = PixelCache(model_folder("qwen2_5_vl"), images)
    cache.prepare(SQUARES)
    cache.prepare(SQUARES[::-1])
    found = cache.get(SQUARES[7:9])
    cache.get(SQUARES)
    assert sorted(images.rendered) == sorted(SQUARES)
    alone = PixelCache(model_folder("qwen2_5_vl"), RenderedImages()).get([SQUARES[8]])
    assert torch.equal(patches(found[1]), patches(alone[0]))


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_normalised_patches_are_the_processors_to_the_bit(family, model_folder):
    """RenderedImages draws sizes that the processor has to scale, too."""
    processor = load_processor(model_folder(family))
    images = RenderedImages()
    uids = ["square-1", "tall-1", "wide-1", "square-2"]
    scaled = images.image("wide-1").resize((131, 77), Image.Resampling.BILINEAR)
    cache = PixelCache(model_folder(family), _Given({uid: images.image(uid) for uid in uids} | {"scaled": scaled}))
    for uid in (*uids, "scaled"):
        (found,) = cache.get([uid])
        expected = processor.image_processor(images=[cache.images.image(uid)], return_tensors="pt")
        assert patches(found).dtype == torch.uint8
        given = cache.forward_inputs([found], [], torch.device("cpu"))
        assert given.keys() <= expected.keys()
        assert all(torch.equal(value, expected[name]) for name, value in given.items()), uid


def test_the_least_recently_used_are_forgotten_first(model_folder):
    images = RenderedImages()
    folder = model_folder("qwen2_5_vl")
    (one,) = PixelCache(folder, images).get(["square-0"])
    cache = PixelCache(folder, images, limit_bytes=3 * one.nbytes)
    cache.get(["square-0", "square-1", "square-2"])
    cache.get(["square-0"])
    cache.get(["square-3"])
    images.rendered.clear()
    cache.get(["square-0", "square-2", "square-3"])
    assert images.rendered == []
    cache.get(["square-1"])
    assert images.rendered == ["square-1"]


def test_more_than_the_limit_is_still_given(model_folder):
    cache = PixelCache(model_folder("qwen2_5_vl"), RenderedImages(), limit_bytes=0)
    assert {len(patches(pixels)) for pixels in cache.get(SQUARES)} == {6 * 6}


def test_an_image_that_failed_is_tried_again(model_folder):
    given = _Given({})
    cache = PixelCache(model_folder("qwen2_5_vl"), given)
    with pytest.raises(KeyError, match="late"):
        cache.get(["late"])
    given.images["late"] = RenderedImages().image("square-1")
    assert len(patches(cache.get(["late"])[0])) == 6 * 6


class _Given:
    """An image source of these images."""

    def __init__(self, images: dict[str, Image.Image]) -> None:
        self.images = images

    def image(self, uid: str) -> Image.Image:
        return self.images[uid]
