"""A tool that the model may call: a function with types and a docstring, from which its schema follows."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError, validate_call

from rl_core.answers import Answer
from rl_core.families.vision import ImageSize

if TYPE_CHECKING:
    from PIL import Image

    from rl_core.types import Prompt

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
    """What a tool gets of the conversation: its images so far, in the order in which the model saw them, and its row,
    in plain values as in `RewardSample`."""

    pictures: Sequence[Picture]
    question: str = ""
    ground_truth: Answer = ""
    data_source: str = ""
    prompt_uid: str = ""
    sample_index: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, prompt: "Prompt", sample_index: int, pictures: Sequence[Picture]) -> "ToolSample":
        """The sample of a conversation that has begun with `prompt`."""
        return cls(
            pictures=pictures,
            question=prompt.question,
            ground_truth=prompt.answer,
            data_source=prompt.data_source,
            prompt_uid=prompt.uid,
            sample_index=sample_index,
            extra=dict(prompt.extra),
        )

    def images(self) -> "list[Image.Image]":
        """The RGB images, each in the size in which the model sees it, so that its coordinates are the model's."""
        from rl_core.data.images import images_of_run  # loads pyarrow and Pillow, which few tools need

        return [images_of_run().image(one.uid).resize(one.shown) for one in self.pictures]


Shown = str | Picture
"""What a tool shows: a text or an image."""


class Tool:
    """A function as a tool. It gets the arguments of a call by their names, and before them the conversation if its
    first parameter is called `sample`. A ValueError is the model's mistake, which it is shown."""

    def __init__(self, function: Callable[..., Any]) -> None:
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

    def __call__(self, sample: ToolSample, arguments: Mapping[str, Any]) -> Any:
        """What the function returns. Raises ValueError, with a sentence for the model, where the arguments do not fit
        the function, and what it raises."""
        given = {SAMPLE: sample} if self._wants_sample else {}
        if clash := sorted(given.keys() & arguments.keys()):
            raise ValueError(f"there is no argument {clash[0]}")
        try:
            return self._checked(**given, **arguments)
        except ValidationError as error:
            raise ValueError("; ".join(_sentence(one) for one in error.errors())) from None


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
