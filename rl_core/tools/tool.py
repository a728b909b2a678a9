"""A tool that the model may call: a function with types and a docstring, from which its schema follows."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError, validate_call

from rl_core.families.vision import ImageSize

SAMPLE = "sample"
"""Name of the first parameter of a tool that looks at the conversation; the model does not give it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of a conversation: its size in pixels, and after the model's processor has scaled it; the picture that
    it is a part of, its edges in parts of that picture's sides (left, top, right, bottom), and the size of that picture
    in pixels."""

    uid: str
    size: ImageSize
    shown: ImageSize
    parent: str
    box: tuple[float, float, float, float]
    parent_size: ImageSize


@dataclass(frozen=True, slots=True)
class ToolSample:
    """What a tool gets of the conversation: its images so far, in the order in which the model saw them."""

    pictures: Sequence[Picture]


Shown = str | Picture
"""What a tool shows: a text or an image."""

ToolFunction = Callable[..., str] | Callable[..., Picture] | Callable[..., list[Shown]]


class Tool:
    """A function as a tool. It gets the arguments of a call by their names, and before them the conversation if its
    first parameter is called `sample`; it returns what is shown, or a list of that. A ValueError is the model's
    mistake, which it is told."""

    def __init__(self, function: ToolFunction) -> None:
        self.name = function.__name__
        self._function = function
        self._wants_sample = SAMPLE in inspect.signature(function).parameters
        self._checked = validate_call(config={"arbitrary_types_allowed": True})(function)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema that a chat template shows the model. Raises ValueError where a parameter has no type or the
        docstring does not describe it."""
        from transformers.utils import get_json_schema  # takes a second to import
        from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

        try:
            schema: dict[str, Any] = get_json_schema(_as_the_model_calls(self._function))
        except (DocstringParsingException, TypeHintParsingException) as error:
            raise ValueError(f"the tool {self.name}: {error}") from None
        schema["function"].pop("return", None)
        return schema

    def __call__(self, sample: ToolSample, arguments: Mapping[str, Any]) -> list[Shown]:
        """Raises ValueError, with a sentence for the model, where the arguments do not fit the function."""
        given = {SAMPLE: sample} if self._wants_sample else {}
        if clash := sorted(given.keys() & arguments.keys()):
            raise ValueError(f"there is no argument {clash[0]}")
        try:
            found = self._checked(**given, **arguments)
        except ValidationError as error:
            raise ValueError("; ".join(_sentence(one) for one in error.errors())) from None
        return found if isinstance(found, list) else [found]


def _sentence(error: Any) -> str:
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"


def _as_the_model_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without the parameter that the model does not give."""

    def declared() -> None: ...

    signature = inspect.signature(function)
    kept = [parameter for name, parameter in signature.parameters.items() if name != SAMPLE]
    declared.__name__, declared.__doc__ = function.__name__, function.__doc__
    declared.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    declared.__annotations__ = {
        name: kind for name, kind in inspect.get_annotations(function).items() if name != SAMPLE
    }
    return declared
