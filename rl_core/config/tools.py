"""The section `tools`: what the model may call while it answers, and the limits of a conversation."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field
from typing_extensions import override

from rl_core.problem import Problem
from rl_core.section import Section

BuiltinTool = Literal["calculator", "zoom"]
"""The tools that Sightline has."""

Coordinates = Literal["pixels", "relative_1000"]
"""How a model names places in a picture."""


class ToolsConfig(Section):
    """Tools that the model may call while it answers, and the limits of a conversation. A turn of the model with calls
    is followed by a turn with their results, and the next turn of the model."""

    use: tuple[BuiltinTool, ...]
    """The tools: `calculator` (arithmetic) and `zoom` (a part of a picture, as large as the limits of pixels allow)."""
    max_turns: int = Field(default=4, ge=2, le=64)
    """Most turns of the model in a conversation, each of at most `rollout.max_response_length` tokens; calls in the
    last one are not answered."""
    max_calls_per_turn: int = Field(default=4, ge=1, le=64)
    """Most calls of a turn that are carried out; the model is told that further ones were not."""
    max_result_length: int = Field(default=512, ge=16)
    """Most tokens of one turn of results, images included. Longer texts are cut; an image that does not fit ends the
    conversation before it, as a response that is cut."""
    max_images: int = Field(default=4, ge=0)
    """Most images of all results of a conversation, beside those of the prompt."""
    max_pixels: int | None = Field(default=None, ge=1)
    """Parts that `zoom` shows have at most this area, in pixels; null: `data.max_pixels`."""
    coordinates: Coordinates = "pixels"
    """How `zoom` is told places: in pixels of the picture as the model sees it (Qwen2.5-VL), or in thousandths of its
    sides (Qwen3-VL)."""
    result_role: Literal["tool", "user"] = "tool"
    """The role of a turn of results in the chat template; `user` for templates that show no images of a tool."""

    @override
    def problems(self) -> Iterator[Problem]:
        if not self.use or len({*self.use}) < len(self.use):
            yield Problem("use", f"{list(self.use)} must name at least one tool, and none twice", "name each tool once")
        if "zoom" in self.use and self.max_images == 0:
            yield Problem("max_images", "zoom gives images, and none is allowed", "raise it, or leave zoom out of use")
