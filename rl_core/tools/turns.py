"""A turn of results as the tokens that follow the model's turn. They are appended to what the model has sampled, which
is never tokenised again: other tokens than it sampled could come of it."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer, Media, RenderedPrompt
from rl_core.data.prompts import Part
from rl_core.tools.calls import WrittenCall, calls_in
from rl_core.tools.tool import Shown
from rl_core.tools.toolbox import Answer

_SAID = "Sightline asks a tool"
"""What the model says in the chats from whose difference the tokens follow."""
_CUT = " ... (cut)"
_CALLED = {"type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}
_CALLING = {"role": "assistant", "content": "", "tool_calls": [_CALLED]}
_QUESTION = {"role": "user", "content": "What is it?"}


@dataclass(frozen=True, slots=True)
class TurnRenderer:
    """Renders the results of a turn's calls with the model's chat template."""

    chat: ChatRenderer
    config: ToolsConfig

    @property
    def turn_end(self) -> int:
        """Id of the token that ends a turn of the model: only after it a conversation goes on. Raises ValueError where
        the chat template has no such token, or changes a turn of the model when another one follows it."""
        token = self._after_turn([{"role": self.config.result_role, "content": "a result"}])[0]
        return int(self.chat.tokenizer.convert_tokens_to_ids(token))

    def render(self, answers: Sequence[Answer]) -> RenderedPrompt | None:
        """The results and the beginning of the model's next turn. Texts are cut, all to the same length, where they are
        longer together than `max_result_length`; None where the images alone are."""
        whole = self._rendered(answers, letters=None)
        if len(whole.token_ids) <= self.config.max_result_length:
            return whole
        longest = max((len(part) for answer in answers for part in answer.shown if isinstance(part, str)), default=0)

        def tokens(letters: int) -> int:
            return len(self._rendered(answers, letters=letters).token_ids)

        letters = bisect_right(range(longest), self.config.max_result_length, key=tokens) - 1
        return None if letters < 0 else self._rendered(answers, letters=letters)

    def check(self) -> None:
        """Raises ValueError, which says what to change, where the chat template cannot carry a conversation: it shows
        no images of results, or writes a call in another form than the one that is read."""
        _ = self.turn_end
        if self.chat.vision.image_token_id is not None and self.config.max_images:
            _, text = self._after_turn([self._message(["a picture", None])])
            token = self.chat.tokenizer.convert_ids_to_tokens(self.chat.vision.image_token_id)
            if text.count(token) != 1:
                raise ValueError(
                    f"the chat template writes {text.count(token)} places for the image of a result with the role "
                    f"{self.config.result_role!r}; set tools.result_role to user, or give a template that shows it "
                    f"(data.override_chat_template)"
                )
        if not self.chat.tools:  # an environment that takes whole turns reads no calls
            return
        try:
            said = self.chat.chat([_QUESTION, _CALLING], answering=False)
        except ValueError as error:
            raise ValueError(f"the chat template cannot render a call: {error}") from None
        if WrittenCall("look", {"at": "it"}) not in calls_in(said):
            raise ValueError(
                "the chat template writes a call in another form than <tool_call>{JSON}</tool_call>, which is the one "
                "that is read; give a template that does (data.override_chat_template)"
            )

    def _rendered(self, answers: Sequence[Answer], *, letters: int | None) -> RenderedPrompt:
        messages = [self._message([_cut(part, letters) for part in answer.shown]) for answer in answers]
        _, text = self._after_turn(messages)
        sizes = [picture.size for answer in answers for picture in answer.pictures]
        (rendered,) = self.chat.tokenised([text], [Media(sizes)])
        return rendered

    def _message(self, parts: Sequence[str | None]) -> dict[str, object]:
        content: list[Part] = [{"type": "image"} if part is None else {"type": "text", "text": part} for part in parts]
        texts = [part for part in parts if part is not None]
        return {"role": self.config.result_role, "content": content if len(texts) < len(parts) else " ".join(texts)}

    def _after_turn(self, messages: Sequence[dict[str, object]]) -> tuple[str, str]:
        """The token that ends a turn of the model, and the text after it when these messages follow."""
        said = [_QUESTION, {"role": "assistant", "content": _SAID}]
        alone = self.chat.chat(said, answering=False)
        before, _, end = alone.rpartition(_SAID)
        longer = self.chat.chat([*said, *messages])
        token = max((one for one in self.chat.tokens.special if end.startswith(one)), key=len, default=None)
        if token is None or not longer.startswith(before + _SAID + token):
            raise ValueError(
                "the chat template does not end a turn of the model with a token of its own, or writes it differently "
                "when a turn of results follows: a conversation cannot be continued with it"
            )
        return token, longer[len(before + _SAID + token) :]


def _cut(part: Shown, letters: int | None) -> str | None:
    """A text, at most so long; None for an image."""
    if not isinstance(part, str):
        return None
    return part if letters is None or len(part) <= letters else part[:letters] + _CUT
