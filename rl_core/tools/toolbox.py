"""The tools of a run: what the model is offered, and how a turn's calls are answered."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any, Final, NoReturn

from PIL import Image

from rl_core.config.data import DataConfig
from rl_core.config.tools import PYTHON, ToolsConfig
from rl_core.data.images import ImageStore
from rl_core.data.pixels import fitted_size
from rl_core.data.vision_tokens import VisionTokens
from rl_core.isolation.failed_share import TooManyFailures, check_failed_share
from rl_core.tools.builtin.calculator import calculator
from rl_core.tools.builtin.python import python_tool
from rl_core.tools.builtin.zoom import zoom_tool
from rl_core.tools.calls import WrittenCall
from rl_core.tools.describing import described, listed
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.messages import (
    RESET,
    STEP,
    EnvironmentCall,
    EnvironmentRequest,
    EnvironmentTurn,
    ToolRequest,
    ToolResult,
    TurnResult,
    mark_of,
)
from rl_core.tools.tool import Picture, Shown, Tool, ToolSample
from rl_core.types import CallOutcome, GenerationRequest, Prompt, ToolCall
from rl_core.user_code.function import is_user_function
from rl_core.wording import plain_text

_WHOLE = (0.0, 0.0, 1.0, 1.0)
_FAILED: Final = "Error: the tool failed"
"""What the model is shown of a failure: the same whatever the reason, which may hold paths and times."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model is shown of a call, the record of it, whether a separate process was asked, and why this failed,
    if it did."""

    shown: Sequence[Shown]
    call: ToolCall
    is_isolated: bool
    failure: str | None = None

    @property
    def pictures(self) -> list[Picture]:
        """Its images, in order."""
        return [part for part in self.shown if isinstance(part, Picture)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTurn:
    """A turn of the model with what the calls in it depend on.

    Attributes:
        version: Of the weights that sampled it.
        seed, conversation, group: Seeds of the turn, of the conversation and of its group.
        past: The earlier turns with calls to the environment.
        row_pictures: Number of the pictures that are the row's.
        opening: The mark of what the environment showed at the beginning; None where that is not known.
    """

    text: str
    sample: ToolSample
    version: int
    seed: int
    conversation: int
    group: int
    past: tuple[EnvironmentTurn, ...]
    row_pictures: int
    opening: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is under way; `finish` waits for what it shows, and raises ValueError where the call is the model's
    mistake, and ToolFailed. A separate process was `asked`, if it is not answered here."""

    call: WrittenCall
    finish: Callable[[], list[Shown]]
    asked: "Future[Any] | None" = None


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """The calls of a turn that are under way, and those of them to the environment with what these come to."""

    calls: Sequence[Begun]
    of_environment: EnvironmentTurn | None = None
    environment: "Future[TurnResult] | None" = None

    @property
    def is_ready(self) -> bool:
        """Whether nothing of it has to be waited for."""
        asked = [self.environment, *(one.asked for one in self.calls)]
        return all(one is None or one.done() for one in asked)


class ToolFailed(Exception):
    """A tool that runs in a separate process gave nothing; the message has the reason."""


def builtin_tools(config: ToolsConfig, data: DataConfig) -> dict[str, Tool]:
    """Those of the configured tools that Sightline has, by their names."""
    most = config.max_pixels or data.max_pixels
    zoom = zoom_tool(config.coordinates, min_pixels=min(data.min_pixels, most), max_pixels=most)
    tools = {"calculator": Tool(calculator), PYTHON: python_tool(config), "zoom": Tool(zoom)}
    return {name: tools[name] for name in config.use if not is_user_function(name)}


def tool_schemas(config: ToolsConfig | None, data: DataConfig) -> list[dict[str, Any]]:
    """What the chat template shows the model of the tools, in their configured order; nothing without them. Raises
    ValueError as `described`."""
    if config is None:
        return []
    own = dict(zip(config.own, described(config.own, config, data), strict=True))
    known = {name: tool.schema for name, tool in builtin_tools(config, data).items()} | own
    of_servers = [schema for schemas in listed(config, data).values() for schema in schemas]
    schemas = [*(known[name] for name in config.use), *of_servers, *(environment_schemas(config, data) or [])]
    names = [*map(_name, schemas)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"tools: {', '.join(twice)} is the name of more than one tool, method of the environment or tool of an MCP "
            "server; give them names of their own, or choose among a server's tools (tools.mcp.SERVER.tools)"
        )
    return schemas


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["function"]["name"])


def environment_schemas(config: ToolsConfig, data: DataConfig) -> list[dict[str, Any]] | None:
    """The schemas of the environment's methods; None where it takes whole turns, or there is none. Raises ValueError as
    `described`."""
    if config.environment is None:
        return None
    (schemas,) = described([config.environment], config, data)
    found: list[dict[str, Any]] | None = schemas
    return found


class Toolbox:
    """Answers the calls of a run's conversations. `vision` says how the model sees an image; `isolated` asks
    separate processes, and `images` keeps the images that these have made."""

    def __init__(
        self,
        config: ToolsConfig,
        data: DataConfig,
        vision: VisionTokens,
        *,
        isolated: IsolatedTools | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self._config = config
        self._data = data
        self._vision = vision
        self._builtin = builtin_tools(config, data)
        of_servers = [_name(schema) for schemas in listed(config, data).values() for schema in schemas]
        self._in_processes = [*(function.rpartition(":")[2] for function in config.isolated), *of_servers]
        methods = environment_schemas(config, data)
        self._methods = [*map(_name, methods or [])]
        self.has_environment = config.environment is not None
        """Whether conversations have a state."""
        self.takes_turns = self.has_environment and methods is None
        """Whether an environment answers each turn of the model, whatever it says."""
        self._isolated = isolated
        self._images = images

    def pictures_of(self, prompt: Prompt) -> list[Picture]:
        """The images of a prompt: the row's, and those that an environment has made."""
        found = [
            Picture(uid, sizes.shown, sizes.shown, uid, _WHOLE, self._stored_size(sizes.original, sizes.shown))
            for uid, sizes in zip(prompt.image_uids, prompt.image_sizes, strict=True)
        ]
        made = [
            replace(picture, size=sizes.original, parent_size=sizes.original)
            for picture, sizes in zip(found, prompt.image_sizes, strict=True)
        ]
        return found[: prompt.row_images] + made[prompt.row_images :]

    def openings(self, requests: Sequence[GenerationRequest], *, version: int) -> list[tuple[Answer, str | None]]:
        """What the environment shows at the end of each prompt, of which weights of this version are asked: the answer
        to a call of its `reset`, and the mark of that, unless it failed. Raises ValueError where that is more images
        than a conversation may have."""
        waiting = [self._reset(request, version) for request in requests]
        begun = [Begun(WrittenCall(RESET, {}), partial(self._of_environment, one, 0), one) for one in waiting]
        found = [self._answer(one, images_left=self._config.max_images) for one in begun]
        if wrong := next((answer.call.result for answer in found if answer.call.outcome == "invalid"), None):
            raise ValueError(f"tools.max_images: what `reset` of the environment returned is not shown: {wrong}")
        results = [one.result().results for one in waiting]
        return [(answer, mark_of(own[0].words) if own else None) for answer, own in zip(found, results, strict=True)]

    def _reset(self, asked: GenerationRequest, version: int) -> "Future[TurnResult]":
        prompt, seed = asked.prompt, asked.group_seed
        request = EnvironmentRequest(
            sample=ToolSample.of(prompt, 0, self.pictures_of(prompt)),
            seed=seed,
            conversation=seed,
            past=(),
            calls=(EnvironmentCall(RESET, {}),),
            row_pictures=prompt.row_images,
        )
        return self._separate.turn(request, version=version)

    def begin(self, turn: ModelTurn, calls: Sequence[WrittenCall]) -> BegunTurn | None:
        """Begin what a turn asks for with these calls; None where it asks for nothing."""
        if self.takes_turns:
            calls = [WrittenCall(STEP, {"text": turn.text})]
        if not calls:
            return None
        mistakes = [self._mistake(call, place) for place, call in enumerate(calls)]
        asked = tuple(
            EnvironmentCall(call.name, call.arguments)
            for call, mistake in zip(calls, mistakes, strict=True)
            if mistake is None and self._is_of_environment(call)
        )
        waiting = self._asked(turn, asked) if asked else None
        of_environment = EnvironmentTurn(asked, len(turn.sample.pictures)) if asked else None
        begun: list[Begun] = []
        answered = 0  # so many of the calls to the environment
        for place, (call, mistake) in enumerate(zip(calls, mistakes, strict=True)):
            if mistake is not None:
                begun.append(Begun(call, partial(_raise, mistake)))
            elif waiting is not None and self._is_of_environment(call):
                begun.append(Begun(call, partial(self._of_environment, waiting, answered), waiting))
                answered += 1
            elif call.name in self._in_processes:
                begun.append(self._called(turn, call, place))
            else:
                begun.append(Begun(call, partial(self._of_builtin, turn, call)))
        return BegunTurn(begun, of_environment, waiting)

    def leave(self, turn: ModelTurn) -> BegunTurn | None:
        """Ask the environment how the conversation has ended with this turn; None if there is none."""
        return BegunTurn((), None, self._asked(turn, ())) if self.has_environment else None

    def answers(self, begun: BegunTurn, *, images_left: int) -> list[Answer]:
        """The answers to the calls of a turn, which may show so many images; and to the question how the conversation
        has ended, where that failed."""
        found: list[Answer] = []
        if not begun.calls and begun.environment is not None and (error := begun.environment.result().error):
            call = ToolCall(name="result", arguments="{}", result=_FAILED, outcome="failed")
            return [Answer((), call, is_isolated=True, failure=error)]
        for one in begun.calls:
            answer = self._answer(one, images_left=images_left)
            images_left -= len(answer.pictures)
            found.append(answer)
        return found

    def check_failures(self, answers: Sequence[Answer]) -> None:
        """Raises TooManyFailures where more of the calls to separate processes failed than may. What failed is asked
        again then, when the run goes on."""
        isolated = [answer for answer in answers if answer.is_isolated]
        failed = [f"{answer.call.name}: {answer.failure}" for answer in isolated if answer.failure is not None]
        most = self._config.max_failed_share
        try:
            check_failed_share(failed, len(isolated), max_failed_share=most, of="calls of tools", section="tools")
        except TooManyFailures:
            self._separate.forget_failures()
            raise

    def _mistake(self, call: WrittenCall, place: int) -> str | None:
        if place >= self._config.max_calls_per_turn:
            return f"only {self._config.max_calls_per_turn} calls of a turn are carried out"
        if call.mistake is not None or self.takes_turns:
            return call.mistake
        known = dict.fromkeys([*self._builtin, *self._in_processes, *self._methods])
        return None if call.name in known else f"there is no tool {call.name!r}; there is {', '.join(known)}"

    def _is_of_environment(self, call: WrittenCall) -> bool:
        return self.takes_turns or call.name in self._methods

    def _asked(self, turn: ModelTurn, calls: tuple[EnvironmentCall, ...]) -> "Future[TurnResult]":
        request = EnvironmentRequest(
            sample=turn.sample,
            seed=turn.group,
            conversation=turn.conversation,
            past=turn.past,
            calls=calls,
            row_pictures=turn.row_pictures,
            opening=turn.opening,
        )
        return self._separate.turn(request, version=turn.version)

    def _called(self, turn: ModelTurn, call: WrittenCall, place: int) -> Begun:
        request = ToolRequest(sample=turn.sample, arguments=call.arguments, seed=turn.seed, place=place)
        waiting = self._separate.call(call.name, request, version=turn.version)
        return Begun(call, lambda: self._shown(waiting.result()), waiting)

    @property
    def _separate(self) -> IsolatedTools:
        assert self._isolated is not None, "it is there where tools run in separate processes"
        return self._isolated

    def _of_environment(self, waiting: "Future[TurnResult]", place: int) -> list[Shown]:
        turn = waiting.result()
        if turn.error is not None:
            raise ToolFailed(turn.error)
        return self._shown(turn.results[place])

    def _of_builtin(self, turn: ModelTurn, call: WrittenCall) -> list[Shown]:
        return [self._builtin[call.name](turn.sample, call.arguments)]

    def _shown(self, result: ToolResult) -> list[Shown]:
        if result.error is not None:
            raise ToolFailed(result.error)
        if result.mistake is not None:
            raise ValueError(result.mistake)
        return [part if isinstance(part, str) else self._made(part) for part in result.shown]

    def _made(self, encoded: bytes) -> Picture:
        assert self._images is not None, "there is a store where tools run in separate processes"
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
        return Answer(shown, call, begun.asked is not None, reason)

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


def _raise(mistake: str) -> NoReturn:
    raise ValueError(mistake)
