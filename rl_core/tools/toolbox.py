"""The tools of a run: what the model is told of them, and how a turn's calls are answered."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Final

from PIL import Image

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.images import ImageStore
from rl_core.data.pixels import fitted_size
from rl_core.data.vision_tokens import VisionTokens
from rl_core.isolation.failed_share import check_failed_share
from rl_core.tools.builtin.calculator import calculator
from rl_core.tools.builtin.zoom import zoom_tool
from rl_core.tools.calls import WrittenCall
from rl_core.tools.order import ToolRequest, ToolResult
from rl_core.tools.own_tools import OwnTools, own_schemas
from rl_core.tools.tool import Picture, Shown, Tool, ToolSample
from rl_core.types import CallOutcome, Prompt, ToolCall
from rl_core.user_code.function import is_user_function
from rl_core.wording import plain_text

_WHOLE = (0.0, 0.0, 1.0, 1.0)
_FAILED: Final = "Error: the tool failed"
"""What the model is told of a failure: the same whatever the reason, which may hold paths and times."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model is told of a call, the record of it, and why its tool failed, if it did."""

    shown: Sequence[Shown]
    call: ToolCall
    failure: str | None = None

    @property
    def pictures(self) -> list[Picture]:
        """Its images, in order."""
        return [part for part in self.shown if isinstance(part, Picture)]


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is under way; `finish` waits for what it shows, and raises ValueError where the call is the model's
    mistake, and ToolFailed."""

    call: WrittenCall
    finish: Callable[[], list[Shown]]


class ToolFailed(Exception):
    """A tool of a user's gave nothing; the message has the reason."""


def builtin_tools(config: ToolsConfig, data: DataConfig) -> dict[str, Tool]:
    """Those of the configured tools that Sightline has, by their names."""
    most = config.max_pixels or data.max_pixels
    zoom = zoom_tool(config.coordinates, min_pixels=min(data.min_pixels, most), max_pixels=most)
    functions: dict[str, Callable[..., Any]] = {"calculator": calculator, "zoom": zoom}
    return {name: Tool(functions[name]) for name in config.use if not is_user_function(name)}


def tool_schemas(config: ToolsConfig | None, data: DataConfig) -> list[dict[str, Any]]:
    """What the chat template shows the model of the tools, in their configured order; nothing without them. Raises
    ValueError as `own_schemas`."""
    if config is None:
        return []
    own = dict(zip(config.own, own_schemas(config, data), strict=True)) if config.own else {}
    known = {name: tool.schema for name, tool in builtin_tools(config, data).items()} | own
    return [known[name] for name in config.use]


class Toolbox:
    """Answers the calls of a run's conversations. `vision` says how the model sees an image; `own` calls the tools that
    a user has written, and `images` keeps what they have made."""

    def __init__(
        self,
        config: ToolsConfig,
        data: DataConfig,
        vision: VisionTokens,
        *,
        own: OwnTools | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self._config = config
        self._data = data
        self._vision = vision
        self._builtin = builtin_tools(config, data)
        self._own_names = [function.rpartition(":")[2] for function in config.own]
        self._own = own
        self._images = images

    def pictures_of(self, prompt: Prompt) -> list[Picture]:
        """The images of a prompt."""
        return [
            Picture(uid, sizes.shown, sizes.shown, uid, _WHOLE, self._stored_size(sizes.original, sizes.shown))
            for uid, sizes in zip(prompt.image_uids, prompt.image_sizes, strict=True)
        ]

    def begin(self, calls: Sequence[WrittenCall], sample: ToolSample, *, seed: int, version: int) -> list[Begun]:
        """Begin the calls of a turn that was sampled with this seed by this version of the weights."""
        return [
            Begun(call, self._finish_of(call, place, sample, seed=seed, version=version))
            for place, call in enumerate(calls)
        ]

    def flush(self) -> None:
        """Have every call that was begun made now."""
        if self._own is not None:
            self._own.flush()

    def answers(self, begun: Sequence[Begun], *, images_left: int) -> list[Answer]:
        """The answers to the calls of a turn, which may show so many images."""
        found: list[Answer] = []
        for one in begun:
            answer = self._answer(one, images_left=images_left)
            images_left -= len(answer.pictures)
            found.append(answer)
        return found

    def check_failures(self, answers: Sequence[Answer]) -> None:
        """Raises TooManyFailures where more of the calls of a user's tools failed than may."""
        own = [answer for answer in answers if answer.call.name in self._own_names]
        failed = [f"{answer.call.name}: {answer.failure}" for answer in own if answer.failure is not None]
        most = self._config.max_failed_share
        check_failed_share(failed, len(own), max_failed_share=most, of="calls of tools", section="tools")

    def _finish_of(
        self, call: WrittenCall, place: int, sample: ToolSample, *, seed: int, version: int
    ) -> Callable[[], list[Shown]]:
        mistake = self._mistake(call, place)
        if mistake is None and self._own is not None and call.name in self._own_names:
            request = ToolRequest(sample=sample, arguments=call.arguments, seed=seed, place=place)
            waiting = self._own.begin(call.name, request, version=version)
            return lambda: self._of_own(waiting)

        def of_builtin() -> list[Shown]:
            if mistake is not None:
                raise ValueError(mistake)
            return [self._builtin[call.name](sample, call.arguments)]

        return of_builtin

    def _mistake(self, call: WrittenCall, place: int) -> str | None:
        if place >= self._config.max_calls_per_turn:
            return f"only {self._config.max_calls_per_turn} calls of a turn are carried out"
        if call.mistake is not None:
            return call.mistake
        known = [*self._builtin, *self._own_names]
        return None if call.name in known else f"there is no tool {call.name!r}; there is {', '.join(known)}"

    def _of_own(self, waiting: "Future[ToolResult]") -> list[Shown]:
        result = waiting.result()
        if result.error is not None:
            raise ToolFailed(result.error)
        if result.mistake is not None:
            raise ValueError(result.mistake)
        return [part if isinstance(part, str) else self._made(part) for part in result.shown]

    def _made(self, encoded: bytes) -> Picture:
        assert self._images is not None, "there is a store where there are tools of a user's"
        with Image.open(BytesIO(encoded)) as image:
            size = image.size
        uid = self._images.add_made(encoded)
        return Picture(uid, size, size, uid, _WHOLE, size)

    def _answer(self, begun: Begun, *, images_left: int) -> Answer:
        outcome: CallOutcome = "answered"
        reason: str | None = None
        try:
            shown = self._within(begun.finish(), images_left)
        except ValueError as mistake:
            shown, outcome = [f"Error: {mistake}"], "invalid"
        except ToolFailed as failure:
            shown, outcome, reason = [_FAILED], "failed", str(failure)
        text = " ".join(part if isinstance(part, str) else f"[image {part.uid}]" for part in shown)
        name = plain_text(begun.call.name)
        arguments = plain_text(json.dumps(begun.call.arguments, ensure_ascii=False))
        call = ToolCall(name=name, arguments=arguments, result=plain_text(text), outcome=outcome)
        return Answer(shown, call, reason)

    def _within(self, shown: list[Shown], images_left: int) -> list[Shown]:
        """With the sizes to which the model's processor scales images. Raises ValueError where it takes no such image,
        or there are too many."""
        if sum(isinstance(part, Picture) for part in shown) > images_left:
            raise ValueError(f"a conversation has at most {self._config.max_images} images besides those of the prompt")
        return [
            replace(part, shown=self._vision.shown_size(*part.size)) if isinstance(part, Picture) else part
            for part in shown
        ]

    def _stored_size(self, original: tuple[int, int], shown: tuple[int, int]) -> tuple[int, int]:
        """Size of the picture that a crop is cut from: the one that the prompt shows where no other is kept."""
        most = self._data.max_source_pixels
        return shown if most is None else fitted_size(original, min_pixels=1, max_pixels=most)
