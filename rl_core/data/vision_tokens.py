"""The tokens of images and videos in a prompt, computed from their sizes alone."""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.families.registry import family_of, vision_token_ids
from rl_core.families.vision import ImageSize, VideoShape, Vision
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class VisionTokens:
    """The tokens that stand for images and videos in a model's prompts. Raises ValueError where the folder is no model
    folder of a family that is trained, or its processor cannot compute tokens from sizes."""

    def __init__(self, model_folder: Path, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._folder = model_folder
        self._tokenizer = tokenizer
        fields = _config(model_folder)
        self._ids = vision_token_ids(fields)
        self._vision = family_of(fields).vision
        self._processor = None if self._vision is None else self._vision.load_processor(model_folder)
        self.of_image = lru_cache(maxsize=None)(self._of_image)
        self.of_video = lru_cache(maxsize=1024)(self._of_video)

    @property
    def image_token_id(self) -> int | None:
        """Placeholder token of an image; None for a text model."""
        return None if self._vision is None else self._ids.get(self._vision.image_field)

    @property
    def video_token_id(self) -> int | None:
        """Placeholder token of a video; None for a model that reads none."""
        return self._ids.get("video_token_id")

    def _of_image(self, width: int, height: int) -> Int32Array:
        """[tokens] that take the place of an image's placeholder. Raises ValueError where the model reads no images, or
        its processor refuses the size."""
        return self._seeing("images").image_tokens(self._processor, (width, height), self._ids)

    def shown_size(self, width: int, height: int) -> ImageSize:
        """Size to which the processor scales an image. Raises ValueError as for its tokens."""
        return self._seeing("images").shown_size(self._processor, (width, height))

    def joined(self, token_ids: Int32Array) -> Int32Array:
        """The tokens of a text in which those of its images have taken their places."""
        return token_ids if self._vision is None else self._vision.joined(self._processor, token_ids)

    def _of_video(self, shape: VideoShape) -> Int32Array:
        """A video's placeholders, and what the family writes between them. Raises ValueError as for an image."""
        return self._seeing("videos").video_tokens(self._processor, shape, self._ids, self._tokenizer)

    def _seeing(self, media: str) -> Vision:
        if self._vision is None or (media == "videos" and self._vision.video_text is None):
            raise ValueError(f"the model in {self._folder} reads no {media}")
        return self._vision


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no model folder: it has no config.json")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config
