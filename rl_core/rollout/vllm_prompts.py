"""Prompts as vLLM takes them, checked against what the trainer will see."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.types import Prompt

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
        self._image_token_id: int | None = getattr(engine.model_config.hf_config, "image_token_id", None)
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
        if prompt.image_uids:
            text["multi_modal_data"] = {"image": [self._images.image(uid) for uid in prompt.image_uids]}
            text["multi_modal_uuids"] = {"image": list(prompt.image_uids)}
        (rendered,) = self._renderer.render_cmpl([text])
        _check_tokens(prompt, rendered["prompt_token_ids"])
        return rendered

    def _check_places(self, prompt: Prompt) -> None:
        places = int((prompt.engine_token_ids == self._image_token_id).sum()) if self._image_token_id else 0
        if places != len(prompt.image_uids):
            raise ValueError(
                f"prompt {prompt.uid} has {places} image place(s) for vLLM and {len(prompt.image_uids)} image(s): "
                f"each image needs one place; {prompt.text!r}"
            )


def _check_tokens(prompt: Prompt, engine_ids: list[int]) -> None:
    """Trainer and engine must see the same tokens, or their log-probs describe different prompts."""
    if not np.array_equal(engine_ids, prompt.token_ids):
        raise ValueError(
            f"prompt {prompt.uid} has {len(prompt.token_ids)} tokens for the trainer and {len(engine_ids)} for vLLM, "
            f"or others: prepare the data with the processor of the model's folder (min_pixels, max_pixels); "
            f"{prompt.text!r}"
        )
