"""Prompts in the form that vLLM takes, checked against the trainer's tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import BatchFeature, PreTrainedConfig

from rl_core.models.pixels import ImageSource, PixelCache, VisionPixels, clip_input
from rl_core.types import Prompt, VideoClip

if TYPE_CHECKING:
    from vllm import LLMEngine
    from vllm.inputs import EngineInput
    from vllm.multimodal.inputs import MultiModalKwargsItems


class PromptRenderer:
    """Turns prompts into vLLM's engine inputs, with the same patches of images that the trainer sees.

    In vLLM's caches an image is identified by its uid, so that its pixels need not be hashed. A prompt with videos is
    left to vLLM's own processor, because the tokens of a video differ more between the families.
    """

    def __init__(self, engine: "LLMEngine", pixels: PixelCache) -> None:
        self._renderer = engine.renderer
        self._pixels = pixels
        config = engine.model_config.hf_config
        self._placeholders = {kind: getattr(config, f"{kind}_token_id", None) for kind in ("image", "video")}
        multimodal = engine.model_config.multimodal_config
        self._engine_normalises = multimodal is not None and bool(multimodal.mm_device_do_normalize)
        self._patches_per_token = _patches_per_token(config)

    def render(self, prompt: Prompt) -> "EngineInput":
        """The engine input of a prompt, which any number of requests may share. Raises ValueError if the prompt does
        not have one placeholder for each image or video, or if vLLM's tokens are not the trainer's."""
        self._check_places(prompt)
        rendered = self._with_videos(prompt) if prompt.videos else self._with_images(prompt)
        _check_tokens(prompt, rendered["prompt_token_ids"])
        return rendered

    def _with_images(self, prompt: Prompt) -> "EngineInput":
        from vllm.inputs import mm_input, tokens_input
        from vllm.multimodal.inputs import PlaceholderRange

        if not prompt.image_uids:
            return tokens_input(prompt.engine_token_ids.tolist())
        shown = self._pixels.get(prompt.image_uids)
        lengths = np.array([len(image.values) // self._patches_per_token for image in shown])
        is_image = prompt.engine_token_ids == self._placeholders["image"]
        repeats = np.ones_like(prompt.engine_token_ids)
        repeats[is_image] = lengths
        starts = (np.cumsum(repeats) - repeats)[is_image]
        return mm_input(
            prompt_token_ids=np.repeat(prompt.engine_token_ids, repeats).tolist(),
            mm_kwargs=self._items(shown),
            mm_hashes={"image": list(prompt.image_uids)},
            mm_placeholders={
                "image": [
                    PlaceholderRange(offset=int(start), length=int(length))
                    for start, length in zip(starts, lengths, strict=True)
                ]
            },
        )

    def _items(self, shown: Sequence[VisionPixels]) -> "MultiModalKwargsItems":
        """Images as vLLM's processor would give them: uint8 patches if the engine normalises them, else float32."""
        from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems

        patches = torch.cat([image.values for image in shown])
        grids = torch.tensor([image.grid_thw for image in shown])
        return MultiModalKwargsItems.from_hf_inputs(
            BatchFeature(
                {
                    "pixel_values": patches if self._engine_normalises else self._pixels.normalised(patches),
                    "image_grid_thw": grids,
                }
            ),
            {
                "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", grids.prod(-1)),
                "image_grid_thw": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
            },
        )

    def _with_videos(self, prompt: Prompt) -> "EngineInput":
        """A prompt with videos, and perhaps images, by vLLM's processor."""
        images = self._pixels.images
        data: dict[str, list[Any]] = {"video": [_video(clip, images) for clip in prompt.videos]}
        uuids: dict[str, list[str]] = {"video": [clip.uid for clip in prompt.videos]}
        if prompt.image_uids:
            data["image"] = [images.image(uid) for uid in prompt.image_uids]
            uuids["image"] = list(prompt.image_uids)
        (rendered,) = self._renderer.render_cmpl(
            [
                {
                    "prompt_token_ids": prompt.engine_token_ids.tolist(),
                    "multi_modal_data": data,
                    "multi_modal_uuids": uuids,
                    "mm_processor_kwargs": {"do_sample_frames": False},
                }
            ]
        )
        return rendered

    def _check_places(self, prompt: Prompt) -> None:
        given = {"image": len(prompt.image_uids), "video": len(prompt.videos)}
        for kind, token in self._placeholders.items():
            places = int((prompt.engine_token_ids == token).sum()) if token is not None else 0
            if places != given[kind]:
                raise ValueError(
                    f"prompt {prompt.uid} has {places} {kind} placeholder(s) for vLLM and {given[kind]} {kind}(s): "
                    f"each {kind} needs one placeholder; {prompt.text!r}"
                )


def _patches_per_token(config: PreTrainedConfig) -> int:
    """How many patches of an image the vision tower merges into one token; 1 for a text model."""
    vision_config = getattr(config, "vision_config", None)
    return 1 if vision_config is None else int(vision_config.spatial_merge_size**2)


def _video(clip: VideoClip, images: ImageSource) -> tuple[Any, dict[str, Any]]:
    frames, times = clip_input(clip, images)
    return frames, {**times, "do_sample_frames": False}


def _check_tokens(prompt: Prompt, engine_ids: list[int]) -> None:
    if not np.array_equal(engine_ids, prompt.token_ids):
        raise ValueError(
            f"prompt {prompt.uid} has {len(prompt.token_ids)} tokens for the trainer and {len(engine_ids)} tokens for "
            f"vLLM, and they are not the same: prepare the data with the processor of the model's folder (min_pixels, "
            f"max_pixels); {prompt.text!r}"
        )
