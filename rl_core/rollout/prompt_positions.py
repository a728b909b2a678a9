"""Rotary positions of a prompt in vLLM, computed once for all its responses."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Positions = tuple[torch.Tensor, int]
Image = tuple[str, str, int, int]


def share_prompt_positions(model: nn.Module) -> None:
    """Let a model of vLLM with multimodal rotary positions return its last answer again if it is asked about the same
    prompt: vLLM asks for each of the n requests of a prompt, one after the other."""
    compute = getattr(model, "get_mrope_input_positions", None)
    if compute is not None:
        model.get_mrope_input_positions = LastAnswer(compute)  # type: ignore[assignment]


class LastAnswer:
    """A function of a prompt's tokens and images that remembers its last answer.

    Attributes:
        computed: How often the answer was computed.
    """

    def __init__(self, compute: Callable[[list[int], list[Any]], Positions]) -> None:
        self._compute = compute
        self._tokens: list[int] = []
        self._images: list[Image] = []
        self._answer: Positions | None = None
        self.computed = 0

    def __call__(self, input_tokens: list[int], mm_features: list[Any]) -> Positions:
        """[3, P] positions, and the difference of the next position to P.

        The lists of a prompt's requests are compared by value: on a GPU each request has one of its own, to which it
        adds what it samples. Their numbers are the same objects, so this takes microseconds.
        """
        images = [_image(feature) for feature in mm_features]
        if self._answer is None or self._tokens != input_tokens or self._images != images:
            self._answer = self._compute(input_tokens, mm_features)
            self._tokens, self._images = input_tokens.copy(), images
            self.computed += 1
        return self._answer


def _image(feature: Any) -> Image:
    """What identifies an image or video and its place; its pixels are dropped once vLLM has computed its features."""
    return feature.modality, feature.identifier, feature.mm_position.offset, feature.mm_position.length
