"""Prompts in the form that vLLM takes, checked against the trainer's tokens."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.clips import clip_input
from rl_core.types import Prompt, VideoClip

if TYPE_CHECKING:
    from vllm import LLMEngine

    from rl_core.data.images import ImageStore


class PromptRenderer:
    """Turns prompts into vLLM's engine inputs: images decoded, preprocessed and expanded to their tokens.

    The n requests of a prompt follow each other, so the last result is kept, and the prompt's images are preprocessed
    once. In vLLM's caches an image is identified by its uid, so that its pixels need not be hashed.
    """

    def __init__(self, engine: "LLMEngine", images: "ImageStore") -> None:
        self._renderer = engine.renderer
        self._images = images
        config = engine.model_config.hf_config
        self._placeholders = {kind: getattr(config, f"{kind}_token_id", None) for kind in ("image", "video")}
        self._last: tuple[Prompt, Any] | None = None

    def render(self, prompt: Prompt) -> Any:
        """The engine input of a prompt, which any number of requests may share.

        Raises:
            ValueError: the prompt does not have one placeholder for each image or video, or vLLM's tokens are not the
                trainer's.
        """
        if self._last is None or self._last[0] is not prompt:
            self._last = (prompt, self._rendered(prompt))
        return self._last[1]

    def _rendered(self, prompt: Prompt) -> Any:
        self._check_places(prompt)
        text: dict[str, Any] = {"prompt_token_ids": prompt.engine_token_ids.tolist()}
        if prompt.image_uids or prompt.videos:
            text |= self._media(prompt)
        (rendered,) = self._renderer.render_cmpl([text])
        _check_tokens(prompt, rendered["prompt_token_ids"])
        return rendered

    def _media(self, prompt: Prompt) -> dict[str, Any]:
        """Images and videos in the form of vLLM's prompts; only the kinds that the prompt has."""
        data: dict[str, list[Any]] = {}
        uuids: dict[str, list[str]] = {}
        if prompt.image_uids:
            data["image"] = [self._images.image(uid) for uid in prompt.image_uids]
            uuids["image"] = list(prompt.image_uids)
        if prompt.videos:
            data["video"] = [_video(clip, self._images) for clip in prompt.videos]
            uuids["video"] = [clip.uid for clip in prompt.videos]
        options = {"mm_processor_kwargs": {"do_sample_frames": False}} if prompt.videos else {}
        return {"multi_modal_data": data, "multi_modal_uuids": uuids, **options}

    def _check_places(self, prompt: Prompt) -> None:
        given = {"image": len(prompt.image_uids), "video": len(prompt.videos)}
        for kind, token in self._placeholders.items():
            places = int((prompt.engine_token_ids == token).sum()) if token is not None else 0
            if places != given[kind]:
                raise ValueError(
                    f"prompt {prompt.uid} has {places} {kind} placeholder(s) for vLLM and {given[kind]} {kind}(s): "
                    f"each {kind} needs one placeholder; {prompt.text!r}"
                )


def _video(clip: VideoClip, images: "ImageStore") -> tuple[Any, dict[str, Any]]:
    """The frames of a clip with their times; vLLM must not choose among them."""
    frames, times = clip_input(clip, images)
    return frames, {**times, "do_sample_frames": False}


def _check_tokens(prompt: Prompt, engine_ids: list[int]) -> None:
    """Check that trainer and vLLM get the same tokens; else their log-probs belong to different prompts."""
    if not np.array_equal(engine_ids, prompt.token_ids):
        raise ValueError(
            f"prompt {prompt.uid} has {len(prompt.token_ids)} tokens for the trainer and {len(engine_ids)} tokens for "
            f"vLLM, and they are not the same: prepare the data with the processor of the model's folder (min_pixels, "
            f"max_pixels); {prompt.text!r}"
        )
