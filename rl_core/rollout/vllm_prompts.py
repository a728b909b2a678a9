"""Prompts as vLLM takes them, checked against what the trainer will see."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.clips import clip_input
from rl_core.types import Prompt, VideoClip

if TYPE_CHECKING:
    from vllm import LLMEngine

    from rl_core.data.images import ImageStore


class PromptRenderer:
    """Turns prompts into vLLM's engine inputs: images decoded, preprocessed and expanded to their tokens.

    The last result is kept, since the n requests of a prompt follow each other: its images are preprocessed once. The
    image's uid stands for its content in vLLM's caches, so that no pixels are hashed.
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
            ValueError: Images and their places in the prompt do not match, or vLLM's tokens are not the trainer's.
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
        """Images and videos as vLLM's prompts carry them, only the kinds there are."""
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
                    f"prompt {prompt.uid} has {places} {kind} place(s) for vLLM and {given[kind]} {kind}(s): "
                    f"each {kind} needs one place; {prompt.text!r}"
                )


def _video(clip: VideoClip, images: "ImageStore") -> tuple[Any, dict[str, Any]]:
    """A clip with its times; the frames it has are all that vLLM is to show."""
    frames, times = clip_input(clip, images)
    return frames, {**times, "do_sample_frames": False}


def _check_tokens(prompt: Prompt, engine_ids: list[int]) -> None:
    """Trainer and engine must see the same tokens, or their log-probs describe different prompts."""
    if not np.array_equal(engine_ids, prompt.token_ids):
        raise ValueError(
            f"prompt {prompt.uid} has {len(prompt.token_ids)} tokens for the trainer and {len(engine_ids)} for vLLM, "
            f"or others: prepare the data with the processor of the model's folder (min_pixels, max_pixels); "
            f"{prompt.text!r}"
        )
