"""Prompts in the form that vLLM takes, checked against the trainer's tokens."""

from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import BatchFeature

from rl_core.families.registry import vision_of
from rl_core.families.vision import EngineImages
from rl_core.models.pixels import ImageSource, PixelCache, clip_input
from rl_core.types import Prompt, VideoClip

if TYPE_CHECKING:
    from vllm import LLMEngine
    from vllm.inputs import EngineInput


class PromptRenderer:
    """Turns prompts into vLLM's engine inputs, with the same patches of images that the trainer sees.

    In vLLM's caches an image is identified by its uid, so that its pixels need not be hashed. What a family does not
    prepare for vLLM, and every prompt with videos, is left to vLLM's own processor.
    """

    def __init__(self, engine: "LLMEngine", pixels: PixelCache) -> None:
        self._renderer = engine.renderer
        self._pixels = pixels
        config = engine.model_config.hf_config
        vision = vision_of(config.model_type)
        fields = {"video": "video_token_id"} | ({} if vision is None else {"image": vision.image_field})
        self._placeholders = {kind: getattr(config, name, None) for kind, name in fields.items()}
        multimodal = engine.model_config.multimodal_config
        self._engine_normalises = multimodal is not None and bool(multimodal.mm_device_do_normalize)

    def render(self, prompt: Prompt) -> "EngineInput":
        """The engine input of a prompt, which any number of requests may share. Raises ValueError if the prompt does
        not have one placeholder for each image or video, or if vLLM's tokens are not the trainer's."""
        self._check_places(prompt)
        rendered = self._rendered(prompt)
        _check_tokens(prompt, rendered["prompt_token_ids"])
        return rendered

    def _rendered(self, prompt: Prompt) -> "EngineInput":
        from vllm.inputs import tokens_input

        if not prompt.image_uids and not prompt.videos:
            return tokens_input(prompt.engine_token_ids.tolist())
        ready = None if prompt.videos else self._pixels.engine_images(prompt.image_uids, raw=self._engine_normalises)
        return self._by_vllm(prompt) if ready is None else self._with_images(prompt, ready)

    def _with_images(self, prompt: Prompt, ready: EngineImages) -> "EngineInput":
        from vllm.inputs import mm_input
        from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems, PlaceholderRange

        is_image = prompt.engine_token_ids == self._placeholders["image"]
        repeats = np.ones_like(prompt.engine_token_ids)
        repeats[is_image] = ready.tokens
        starts = (np.cumsum(repeats) - repeats)[is_image]
        fields = {
            name: MultiModalFieldConfig.flat_from_sizes("image", ready.rows[name])
            if name in ready.rows
            else MultiModalFieldConfig.batched("image", keep_on_cpu=True)
            for name in ready.tensors
        }
        return mm_input(
            prompt_token_ids=np.repeat(prompt.engine_token_ids, repeats).tolist(),
            mm_kwargs=MultiModalKwargsItems.from_hf_inputs(BatchFeature(dict(ready.tensors)), fields),
            mm_hashes={"image": list(prompt.image_uids)},
            mm_placeholders={
                "image": [
                    PlaceholderRange(offset=int(start), length=int(length))
                    for start, length in zip(starts, ready.tokens, strict=True)
                ]
            },
        )

    def _by_vllm(self, prompt: Prompt) -> "EngineInput":
        """A prompt with images or videos, by vLLM's processor."""
        images = self._pixels.images
        data: dict[str, list[Any]] = {}
        uuids: dict[str, list[str]] = {}
        further: dict[str, Any] = {}
        if prompt.videos:
            data["video"] = [_video(clip, images) for clip in prompt.videos]
            uuids["video"] = [clip.uid for clip in prompt.videos]
            further["mm_processor_kwargs"] = {"do_sample_frames": False}
        if prompt.image_uids:
            data["image"] = [images.image(uid) for uid in prompt.image_uids]
            uuids["image"] = list(prompt.image_uids)
        (rendered,) = self._renderer.render_cmpl(
            [
                {
                    "prompt_token_ids": prompt.engine_token_ids.tolist(),
                    "multi_modal_data": data,
                    "multi_modal_uuids": uuids,
                    **further,
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
