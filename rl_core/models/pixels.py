"""Pixel tensors of a step's images, made once a step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from PIL import Image
from transformers import PreTrainedTokenizerBase, ProcessorMixin


class ImageSource(Protocol):
    """Where the bytes of an image come from."""

    def image(self, uid: str) -> Image.Image:
        """The decoded RGB image. Raises KeyError for a uid it does not hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePixels:
    """One image as the vision tower takes it.

    Attributes:
        values: [t*h*w, C] flattened patches, float32, on the CPU.
        grid_thw: (t, h, w) in patches.
    """

    values: torch.Tensor
    grid_thw: tuple[int, int, int]


class PixelCache:
    """Image uid -> pixels. Filled on demand, a list at a time because the image processor works on batches; cleared by
    the owner at the end of a step."""

    def __init__(self, processor: ProcessorMixin | PreTrainedTokenizerBase, images: ImageSource) -> None:
        """`processor` may be a tokenizer: then the model reads no images, and asking for one is a TypeError."""
        self._processor = processor
        self._images = images
        self._pixels: dict[str, ImagePixels] = {}

    def get(self, uids: Sequence[str]) -> list[ImagePixels]:
        """Pixels of the images, in the order asked for."""
        self._make(uid for uid in dict.fromkeys(uids) if uid not in self._pixels)
        return [self._pixels[uid] for uid in uids]

    def clear(self) -> None:
        """Forget all images."""
        self._pixels.clear()

    def _make(self, uids: Iterable[str]) -> None:
        missing = list(uids)
        if not missing:
            return
        if not isinstance(self._processor, ProcessorMixin):
            raise TypeError(f"image {missing[0]!r} was asked for, but the model is a text model without a processor")
        made = self._processor.image_processor(images=[self._images.image(uid) for uid in missing], return_tensors="pt")
        grids = [(int(t), int(h), int(w)) for t, h, w in made["image_grid_thw"].tolist()]
        values = torch.split(made["pixel_values"], [t * h * w for t, h, w in grids])
        for uid, value, grid in zip(missing, values, grids, strict=True):
            self._pixels[uid] = ImagePixels(values=value, grid_thw=grid)
