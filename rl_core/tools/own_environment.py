"""A user's environment in a process of its own: the states of conversations, and the calls that change them."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

from rl_core.isolation.calling import seed_library_generators
from rl_core.rewards.components import number_problem
from rl_core.tools.isolated_tool import Mistake, SentResult, load_value, sent
from rl_core.tools.messages import (
    RESET,
    STEP,
    EnvironmentCall,
    EnvironmentRequest,
    EnvironmentTurn,
    ShownLimits,
    ToolRequest,
    ToolSpec,
    mark_of,
)
from rl_core.tools.tool import Tool, ToolSample

MOST_SESSIONS = 1024
"""So many states are held; that of a conversation which is asked about after many others is made again."""

_NOT_TOOLS = (RESET, "done", "result", STEP)


class SentTurn(NamedTuple):
    """A `TurnResult` as it is sent: images as text."""

    results: Sequence[SentResult]
    is_done: bool
    numbers: Mapping[str, float]
    differs: str | None
    error: str | None


@dataclass(slots=True)
class _Session:
    """An environment after these turns, what its `reset` returned, and the call that gave something else when it was
    made again."""

    environment: Any
    opening: Any
    past: tuple[EnvironmentTurn, ...]
    differs: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnEnvironment:
    """A loaded class, and the states of the conversations that go on."""

    spec: ToolSpec
    limits: ShownLimits
    class_of: type
    sessions: "OrderedDict[int, _Session]" = field(default_factory=OrderedDict)

    def call(self, one: EnvironmentRequest) -> object:
        """What its methods return for the calls of a turn, whether it is done, and its numbers. A state that a call has
        left in the middle is forgotten, and made again when the conversation goes on."""
        try:
            return self._played(one)
        except MemoryError:
            if not self.sessions:
                raise
        self.sessions.clear()  # the states of others are made again
        return self._played(one)

    def _played(self, one: EnvironmentRequest) -> object:
        if [call.method for call in one.calls] == [RESET]:  # each conversation begins with a state of its own
            opening = self._made_again(one).opening
            return [_nothing_or(opening)], False, {}, None
        session = self.sessions.pop(one.conversation, None)
        if session is None or _calls(session.past) != _calls(one.past):
            session = self._made_again(one)
        turn = EnvironmentTurn(one.calls, len(one.sample.pictures))
        results = _results(session.environment, turn, one, len(one.past))
        environment = session.environment
        is_done = bool(environment.done()) if hasattr(environment, "done") else False
        numbers = environment.result() if hasattr(environment, "result") else {}
        if one.calls and not is_done:
            self.sessions[one.conversation] = replace(session, past=(*one.past, turn), differs=None)
        if len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)
        return results, is_done, numbers, session.differs

    def call_all(self, inputs: Sequence[EnvironmentRequest]) -> NoReturn:
        """No environment is a batch function."""
        raise NotImplementedError

    def result(self, one: EnvironmentRequest, returned: Any) -> SentTurn:
        """What the model is shown. Raises ValueError where it is of another kind, or a number is none."""
        results, is_done, numbers, differs = returned
        return SentTurn([sent(self.limits, found) for found in results], is_done, _checked(numbers), differs, None)

    def _made_again(self, one: EnvironmentRequest) -> _Session:
        seed_library_generators(str(one.seed))
        environment = self.class_of()
        opening = environment.reset(_before(one.sample, one.row_pictures), one.seed)
        others = [RESET] if one.opening not in (None, self._mark(_nothing_or(opening))) else []
        for number, turn in enumerate(one.past):
            found = _results(environment, turn, one, number)
            others += [
                f"{call.method} in turn {number + 1}"
                for call, returned, known in zip(turn.calls, found, turn.results, strict=False)
                if self._mark(returned) != known
            ]
        return _Session(environment, opening, one.past, others[0] if others else None)

    def _mark(self, returned: object) -> str:
        try:
            return mark_of(sent(self.limits, returned))
        except ValueError:  # of another kind, which no recorded result is
            return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A loaded function or class that says what it is."""

    spec: ToolSpec
    loaded: Any

    def call(self, one: ToolRequest) -> object:
        """As JSON: the schema of a function; those of a server's tools; of a class those of its methods, or null where
        its `step` takes the model's turns. Raises ValueError as `Tool.schema` and `ServerTools.listed`, and where a
        class has neither or both."""
        if self.spec.settings is not None:
            return _listed(self.loaded(**self.spec.settings))
        if not isinstance(self.loaded, type):
            return json.dumps(Tool(self.loaded).schema)
        environment = self.loaded()
        if not hasattr(environment, RESET):
            raise ValueError("it has no `reset(self, sample, seed)`")
        names = dict.fromkeys(name for one in reversed(self.loaded.__mro__) for name in vars(one))
        methods = [getattr(environment, name) for name in names if name[0] != "_" and name not in _NOT_TOOLS]
        schemas = [Tool(method).schema for method in methods if callable(method)]
        if hasattr(environment, STEP) == bool(schemas):
            raise ValueError("it must have either `step(self, text)`, or public methods that are tools")
        return json.dumps(schemas or None)

    def call_all(self, inputs: Sequence[ToolRequest]) -> NoReturn:
        """Nothing is described in a batch."""
        raise NotImplementedError

    def result(self, one: ToolRequest, returned: object) -> SentResult:
        """The description as text."""
        return SentResult([("text", str(returned))], None, None)


def load_environment(spec: ToolSpec, limits: ShownLimits) -> OwnEnvironment:
    """Import the class. Raises anything that its module raises, and TypeError where it is no class."""
    class_of = load_value(spec)
    if not isinstance(class_of, type):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(class_of).__name__}, not a class")
    return OwnEnvironment(spec=spec, limits=limits, class_of=class_of)


def load_description(spec: ToolSpec) -> Description:
    """Import a function or a class. Raises anything that its module raises, and TypeError where it is neither."""
    loaded = load_value(spec)
    if not callable(loaded):
        raise TypeError(f"`{spec.function}` of {spec.source} is {type(loaded).__name__}, not a function or a class")
    return Description(spec=spec, loaded=loaded)


async def _listed(server: Any) -> str:
    return json.dumps(await server.listed())


def _nothing_or(opening: object) -> object:
    return [] if opening is None else opening


def _calls(past: Sequence[EnvironmentTurn]) -> list[tuple[tuple[EnvironmentCall, ...], int]]:
    return [(turn.calls, turn.pictures) for turn in past]


def _results(environment: Any, turn: EnvironmentTurn, one: EnvironmentRequest, number: int) -> list[object]:
    """What the calls of a turn, by its number, return: the same when they are made again."""
    seed_library_generators(f"{one.conversation}/{number}")
    sample = _before(one.sample, turn.pictures)
    return [_called(environment, call, sample) for call in turn.calls]


def _before(sample: ToolSample, pictures: int) -> ToolSample:
    return replace(sample, pictures=sample.pictures[:pictures])


def _called(environment: Any, call: EnvironmentCall, sample: ToolSample) -> object:
    try:
        if call.method == STEP:
            return environment.step(**call.arguments)
        return Tool(getattr(environment, call.method))(sample, call.arguments)
    except ValueError as mistake:
        return Mistake(str(mistake))


def _checked(numbers: object) -> dict[str, float]:
    if not isinstance(numbers, Mapping):
        raise ValueError(f"`result` returned {type(numbers).__name__}, not a dict of numbers")
    found = {str(name): float(value) for name, value in numbers.items()}
    for name, value in found.items():
        if (problem := number_problem(value)) is not None:
            raise ValueError(f"`result` gave {name}, which {problem}")
    return found
