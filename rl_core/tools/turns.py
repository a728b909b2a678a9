"""A turn of results as the tokens that follow the model's turn. They are appended to what the model has sampled, which
is never tokenised again: other tokens than it sampled could come of it."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer, Media, RenderedPrompt
from rl_core.data.prompts import Content, Part
from rl_core.image_sizes import ImageSizes
from rl_core.tools.call_reader import CallReader
from rl_core.tools.calls import WrittenCall
from rl_core.tools.tool import Shown
from rl_core.tools.toolbox import Answer
from rl_core.types import EnvironmentOpening, Prompt

_ANSWER = "Sightline asks a tool"
"""What the model says in the chats from whose difference the tokens follow."""
_THOUGHT = "Sightline thinks"
_TEMPLATES = "data.override_chat_template; for Qwen2-VL and Qwen2.5-VL configs/chat_templates/qwen2_vl_tools.jinja"
_CUT = " ... (cut)"
_CALL = WrittenCall("look", {"at": "it", "often": 2})
_CALLED = {"type": "function", "id": "call00000", "function": {"name": _CALL.name, "arguments": dict(_CALL.arguments)}}
_CALLING = {"role": "assistant", "content": "", "tool_calls": [_CALLED]}
_LOOK = {"name": _CALL.name, "parameters": {"properties": {"at": {"type": "string"}, "often": {"type": "integer"}}}}
_ASKED = "What is it?"
_PICTURE = (56, 56)
_QUESTION = {"role": "user", "content": _ASKED}


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
        return self._fitted(answers, self._turn)

    def opening(self, shown: Answer, prompt: Prompt) -> EnvironmentOpening:
        """What an environment has shown as the end of a prompt's last turn, with texts cut as in `render`. Raises
        ValueError where the images alone are too many tokens, or the prompt does not end as the chat template ends a
        user's turn."""
        _, tail = self._end_of_question([])
        tail_ids = self.chat.tokenised([tail], [Media()])[0].engine_token_ids
        own_tail = prompt.engine_token_ids[-len(tail_ids) :]
        if not prompt.text.endswith(tail) or own_tail.tolist() != tail_ids.tolist():
            raise ValueError(f"the prompt {prompt.text!r} does not end as a user's turn: nothing can be shown there")
        rendered = self._fitted([shown], self._end)
        if rendered is None:
            raise ValueError("what `reset` of the environment shows is more tokens than tools.max_result_length")
        return EnvironmentOpening(
            text=rendered.text,
            token_ids=rendered.token_ids,
            engine_token_ids=rendered.engine_token_ids,
            tail_letters=len(tail),
            tail_tokens=len(tail_ids),
            image_uids=tuple(picture.uid for picture in shown.pictures),
            image_sizes=tuple(ImageSizes(picture.size, picture.shown) for picture in shown.pictures),
            call=shown.call,
        )

    def _fitted(
        self, answers: Sequence[Answer], text_of: Callable[[Sequence[Answer], int | None], str]
    ) -> RenderedPrompt | None:
        sizes = [picture.size for answer in answers for picture in answer.pictures]

        def rendered(letters: int | None) -> RenderedPrompt:
            (found,) = self.chat.tokenised([text_of(answers, letters)], [Media(sizes)])
            return found

        whole = rendered(None)
        if len(whole.token_ids) <= self.config.max_result_length:
            return whole
        longest = max((len(part) for answer in answers for part in answer.shown if isinstance(part, str)), default=0)
        most = self.config.max_result_length
        letters = bisect_right(range(longest), most, key=lambda letters: len(rendered(letters).token_ids)) - 1
        return None if letters < 0 else rendered(letters)

    def check(self) -> None:
        """Raises ValueError, which says what to change, where the chat template cannot carry a conversation: it shows
        no images of results, or writes a call in another form than the one that is read."""
        _ = self.turn_end
        if self.config.environment is not None:
            self._end_of_question(["what it shows first"])  # whether that has images, only its `reset` knows
        if self.chat.vision.image_token_id is not None and self.config.max_images:
            _, text = self._after_turn([self._message(["a picture", None])])
            token = self.chat.tokenizer.convert_ids_to_tokens(self.chat.vision.image_token_id)
            if text.count(token) != 1:
                raise ValueError(
                    f"the chat template writes {text.count(token)} places for the image of a result with the role "
                    f"{self.config.result_role!r}; set tools.result_role to user, or give a template that shows it "
                    f"({_TEMPLATES})"
                )
            (turn,) = self.chat.tokenised([text], [Media([_PICTURE])])
            twice = np.concatenate([turn.token_ids, [self.turn_end], turn.token_ids])
            if not np.array_equal(self.chat.vision.joined(twice), twice):
                raise ValueError(
                    "the model numbers the images of a conversation, and the tokens of a result know none before it; "
                    "set tools.max_images to 0"
                )

    def remark(self) -> str | None:
        """What a person should know before the run: that the chat template leaves out what a model has thought when
        results follow, which stays in a conversation of the run; None if it does not."""
        thinking = {"role": "assistant", "content": f"<think>\n{_THOUGHT}\n</think>\n\n{_ANSWER}"}
        if _THOUGHT in self.chat.chat([_QUESTION, thinking, self._message(["a result"])]):
            return None
        return (
            "the chat template leaves out what a model has thought in an earlier turn; in this run's conversations it "
            "stays, because tokens are only appended, so whoever renders the chat again for each turn asks the trained "
            "model in another way than it was trained"
        )

    def reader(self) -> CallReader:
        """What reads the calls of a turn as the chat template writes them. Raises ValueError where nothing does."""
        plain = CallReader(tokenizer=self.chat.tokenizer, schemas=self.chat.tools)
        if not self.chat.tools:  # an environment that takes whole turns reads no calls
            return plain
        try:
            called = self.chat.chat([_QUESTION, _CALLING], answering=False)
        except ValueError as error:
            raise ValueError(f"the chat template cannot render a call: {error}") from None
        asked = self.chat.chat([_QUESTION], answering=False)
        before = self.chat.chat([_QUESTION]).removeprefix(asked)
        called = called.removeprefix(asked)
        shared = next(before[:length] for length in range(len(before), -1, -1) if called.startswith(before[:length]))
        ids = self.chat.tokenizer.encode(called.removeprefix(shared), add_special_tokens=False)
        readers = [plain]
        if getattr(self.chat.tokenizer, "response_template", None) is not None:
            readers.append(replace(plain, by_template=True, before=before))
        for reader in readers:
            text = self.chat.tokenizer.decode(ids, skip_special_tokens=not reader.by_template)
            if replace(reader, schemas=[{"type": "function", "function": _LOOK}], before=shared).read(text) == [_CALL]:
                return reader
        raise ValueError(
            "the chat template writes a call in another form than those that are read: JSON or <function=...> in "
            "<tool_call>, and what the tokenizer's response_template says; give a template that does "
            f"({_TEMPLATES})"
        )

    def _turn(self, answers: Sequence[Answer], letters: int | None) -> str:
        messages = [self._message([_cut(part, letters) for part in answer.shown]) for answer in answers]
        return self._after_turn(messages)[1]

    def _end(self, answers: Sequence[Answer], letters: int | None) -> str:
        return self._end_of_question([_cut(part, letters) for answer in answers for part in answer.shown])[0]

    def _message(self, parts: Sequence[str | None]) -> dict[str, object]:
        return {"role": self.config.result_role, "content": _content(parts)}

    def _end_of_question(self, parts: Sequence[str | None]) -> tuple[str, str]:
        """What a user's turn has at its end when it shows these parts too, on a line of their own; and what follows its
        last part. Raises ValueError where the chat template shows something else."""
        before, _, tail = self.chat.chat([_QUESTION]).rpartition(_ASKED)
        asked, content = f"{_ASKED}\n", _content(parts)
        longer = self.chat.chat(
            [
                {
                    "role": "user",
                    "content": asked + content if isinstance(content, str) else [_text(asked), *content],
                }
            ]
        )
        if not longer.startswith(before + _ASKED) or not longer.endswith(tail):
            raise ValueError(
                "the chat template does not show the parts of a user's turn one after the other, so what `reset` of "
                "the environment shows cannot stand at its end; give a template that does "
                "(data.override_chat_template), or have it show a text alone"
            )
        return longer[len(before + _ASKED) : len(longer) - len(tail)], tail

    def _after_turn(self, messages: Sequence[dict[str, object]]) -> tuple[str, str]:
        """The token that ends a turn of the model, and the text after it when these messages follow."""
        before_results = [_QUESTION, {"role": "assistant", "content": _ANSWER}]
        alone = self.chat.chat(before_results, answering=False)
        before, _, end = alone.rpartition(_ANSWER)
        longer = self.chat.chat([*before_results, *messages])
        token = max((one for one in self.chat.tokens.special if end.startswith(one)), key=len, default=None)
        if token is None or not longer.startswith(before + _ANSWER + token):
            raise ValueError(
                "the chat template does not end a turn of the model with a token of its own, or writes it differently "
                "when a turn of results follows: a conversation cannot be continued with it"
            )
        return token, longer[len(before + _ANSWER + token) :]


def _content(parts: Sequence[str | None]) -> Content:
    """Of a message: texts, and None for an image."""
    if None not in parts:
        return " ".join(part for part in parts if part is not None)
    return [{"type": "image"} if part is None else _text(part) for part in parts]


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _cut(part: Shown, letters: int | None) -> str | None:
    """A text, at most so long; None for an image."""
    if not isinstance(part, str):
        return None
    return part if letters is None or len(part) <= letters else part[:letters] + _CUT
