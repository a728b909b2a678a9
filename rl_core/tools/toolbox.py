"""The tools of a run: what the model is told of them, and how a turn's calls are answered."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_core.config.data import DataConfig
from rl_core.config.tools import BuiltinTool, ToolsConfig
from rl_core.data.pixels import fitted_size
from rl_core.data.vision_tokens import VisionTokens
from rl_core.tools.builtin.calculator import calculator
from rl_core.tools.builtin.zoom import zoom_tool
from rl_core.tools.calls import WrittenCall
from rl_core.tools.tool import Picture, Shown, Tool, ToolFunction, ToolSample
from rl_core.types import CallOutcome, Prompt, ToolCall

_WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model is told of a call, and the record of it."""

    shown: Sequence[Shown]
    call: ToolCall

    @property
    def pictures(self) -> list[Picture]:
        """Its images, in order."""
        return [part for part in self.shown if isinstance(part, Picture)]


def tools_of(config: ToolsConfig, data: DataConfig) -> list[Tool]:
    """The configured tools, in their order."""
    most = config.max_pixels or data.max_pixels
    zoom = zoom_tool(config.coordinates, min_pixels=min(data.min_pixels, most), max_pixels=most)
    functions: dict[BuiltinTool, ToolFunction] = {"calculator": calculator, "zoom": zoom}
    return [Tool(functions[name]) for name in config.use]


def tool_schemas(config: ToolsConfig | None, data: DataConfig) -> list[dict[str, Any]]:
    """What the chat template shows the model of the tools; nothing without them."""
    return [] if config is None else [tool.schema for tool in tools_of(config, data)]


class Toolbox:
    """Answers the calls of a run's conversations. `vision` says how the model sees an image."""

    def __init__(self, config: ToolsConfig, data: DataConfig, vision: VisionTokens) -> None:
        self._config = config
        self._data = data
        self._vision = vision
        self._tools = {tool.name: tool for tool in tools_of(config, data)}

    def pictures_of(self, prompt: Prompt) -> list[Picture]:
        """The images of a prompt."""
        return [
            Picture(uid, sizes.shown, sizes.shown, uid, _WHOLE, self._stored_size(sizes.original, sizes.shown))
            for uid, sizes in zip(prompt.image_uids, prompt.image_sizes, strict=True)
        ]

    def answers(self, calls: Sequence[WrittenCall], pictures: Sequence[Picture], *, images_left: int) -> list[Answer]:
        """An answer to each call of a turn of the model. The conversation has shown `pictures`, and may show so many
        more."""
        found: list[Answer] = []
        for number, call in enumerate(calls):
            so_far = [*pictures, *(picture for answer in found for picture in answer.pictures)]
            found.append(self._answer(call, number, so_far, images_left=images_left + len(pictures) - len(so_far)))
        return found

    def _answer(self, call: WrittenCall, number: int, pictures: Sequence[Picture], *, images_left: int) -> Answer:
        try:
            shown = self._carried_out(call, number, pictures, images_left=images_left)
            outcome: CallOutcome = "answered"
        except ValueError as mistake:
            shown, outcome = [f"Error: {mistake}"], "invalid"
        text = " ".join(part if isinstance(part, str) else f"[image {part.uid}]" for part in shown)
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return Answer(shown, ToolCall(name=call.name, arguments=arguments, result=text, outcome=outcome))

    def _carried_out(
        self, call: WrittenCall, number: int, pictures: Sequence[Picture], *, images_left: int
    ) -> list[Shown]:
        if number >= self._config.max_calls_per_turn:
            raise ValueError(f"only {self._config.max_calls_per_turn} calls of a turn are carried out")
        if call.mistake is not None:
            raise ValueError(call.mistake)
        if call.name not in self._tools:
            raise ValueError(f"there is no tool {call.name!r}; there is {', '.join(self._tools)}")
        shown = self._tools[call.name](ToolSample(pictures), call.arguments)
        if sum(isinstance(part, Picture) for part in shown) > images_left:
            raise ValueError(f"a conversation has at most {self._config.max_images} images besides those of the prompt")
        return [self._as_seen(part) if isinstance(part, Picture) else part for part in shown]

    def _as_seen(self, picture: Picture) -> Picture:
        """With the size to which the model's processor scales it. Raises ValueError where it takes no such image."""
        return replace(picture, shown=self._vision.shown_size(*picture.size))

    def _stored_size(self, original: tuple[int, int], shown: tuple[int, int]) -> tuple[int, int]:
        """Size of the picture that a crop is cut from: the one that the prompt shows where no other is kept."""
        most = self._data.max_source_pixels
        return shown if most is None else fitted_size(original, min_pixels=1, max_pixels=most)
