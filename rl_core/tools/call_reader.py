"""Reads the calls of a turn in the form in which the model's chat template writes them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_core.tools.calls import WrittenCall, calls_in
from rl_core.types import Rollout

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FIELD = "tool_calls"
"""Of a message that transformers has read from a response."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallReader:
    """Reads calls in `<tool_call>` or, `by_template`, as the response template of the tokenizer says.

    Attributes:
        schemas: Of the tools.
        before: What the chat template has written of the model's turn.
    """

    tokenizer: "PreTrainedTokenizerBase"
    schemas: Sequence[Mapping[str, Any]]
    by_template: bool = False
    before: str = ""

    def calls(self, turn: Rollout) -> list[WrittenCall]:
        """The calls of a whole turn, in their order."""
        if not self.by_template:
            return calls_in(turn.text, self.schemas)
        # The marks of a call may be special tokens, which the text lacks.
        return self.read(self.tokenizer.decode(turn.response_ids[:-1]))

    def read(self, text: str) -> list[WrittenCall]:
        """The calls in a text with its special tokens. One that cannot be read makes the whole turn unreadable."""
        if not self.by_template:
            return calls_in(text, self.schemas)
        try:
            message = self.tokenizer.parse_response(text, prefix=self.before, tools=[*map(dict, self.schemas)])
            found = [*_of_message(message.get(_FIELD, []))]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found = []
            if self._begins_one(text):
                return [WrittenCall("", {}, "the calls of the turn cannot be read, and none is carried out")]
        return found or calls_in(text, self.schemas)  # as rows of a cold start may have taught it

    def _begins_one(self, text: str) -> bool:
        from transformers.utils.chat_parsing.response_templates import load_response_template

        field = load_response_template(self.tokenizer.response_template).fields.get(_FIELD)
        return field is not None and field.open_re is not None and field.open_re.search(text) is not None


def _of_message(calls: Sequence[Mapping[str, Any]]) -> Iterator[WrittenCall]:
    for call in calls:
        made = call.get("function", call)
        arguments = made.get("arguments", {})
        yield WrittenCall(made["name"], dict(json.loads(arguments) if isinstance(arguments, str) else arguments))
