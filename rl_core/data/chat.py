"""Renders a question as the model's chat prompt, in text and in token ids, without touching a pixel; replaces the chat
template of a model's folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import numpy as np

from rl_core.data.prompts import Content, PromptTemplate, chat_content
from rl_core.data.vision_tokens import VisionTokens
from rl_core.families.vision import ImageSize, VideoShape
from rl_core.files import atomic_write_json, atomic_write_text, read_json, remove_folder
from rl_core.planning.model_tokens import ModelTokens
from rl_core.sources.rows import Role, Turn
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_TEMPLATE_FILE = "chat_template.jinja"
# Places where older checkpoints keep a template, which would win over the file or be refused with it.
_OLDER_FILE = "chat_template.json"
_OTHERS_FOLDER = "additional_chat_templates"
_SETTINGS_FILES = ("tokenizer_config.json", "processor_config.json", "preprocessor_config.json")


class Media(NamedTuple):
    """The sizes of a prompt's images and videos, in the order of their places."""

    images: Sequence[ImageSize] = ()
    videos: Sequence[VideoShape] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedPrompt:
    """A chat prompt: the text that was tokenised; [E] its token ids with one placeholder for each image or video, which
    vLLM expands itself; and [P] with every image and video expanded as by the model's processor."""

    text: str
    engine_token_ids: Int32Array
    token_ids: Int32Array


class ChatRenderer:
    """Applies a model's chat template and tokenizer to questions. `prompt_template` is a Jinja file that is wrapped
    around each question, or the template itself; `chat_template_kwargs` are further variables of the chat template,
    which is the model's unless one is given; `tools` are the schemas of the tools that the model may call. Raises
    ValueError where there is no chat template, or a template is wrong."""

    def __init__(
        self,
        model_folder: Path,
        *,
        prompt_template: str | PromptTemplate | None,
        system_prompt: str | None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        # transformers takes seconds to import, and planning a run imports this module.
        from transformers import AutoTokenizer

        self._folder = model_folder
        if not isinstance(prompt_template, PromptTemplate):
            prompt_template = PromptTemplate.load(prompt_template)
        self._template = prompt_template
        self._system_prompt = system_prompt
        self.tools = tuple(tools)
        self._chat_template_kwargs = {**(chat_template_kwargs or {}), **({"tools": list(tools)} if tools else {})}
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model_folder, trust_remote_code=False)
        self._chat_template = chat_template or _chat_template(model_folder) or self.tokenizer.chat_template
        if self._chat_template is None:
            raise ValueError(f"the model in {model_folder} has no chat template (chat_template.jinja)")
        self.vision = VisionTokens(model_folder, self.tokenizer)
        self.tokens = ModelTokens.read(model_folder)

    def render_all(
        self,
        questions: Sequence[str],
        media: Sequence[Media],
        *,
        histories: Sequence[Sequence[Turn]],
        values: Sequence[Mapping[str, Any]] | None = None,
        asks: Sequence[Role] | None = None,
    ) -> list[RenderedPrompt]:
        """Many prompts at once, which is faster than one by one. A system turn in the history of a question replaces
        the configured system prompt; `values` are what the prompt template can show besides each question, and `asks`
        says whose turns the questions are: a tool's is shown without the prompt template. Raises
        ValueError where a prompt has not one place for each of its images and videos, a turn contains a control token,
        or a template cannot render it."""
        if not questions:
            return []
        values = [{}] * len(questions) if values is None else values
        asks = ["user"] * len(questions) if asks is None else asks
        texts = [self._render(*one) for one in zip(questions, histories, values, asks, strict=True)]
        return self.tokenised(texts, media)

    def tokenised(self, texts: Sequence[str], media: Sequence[Media]) -> list[RenderedPrompt]:
        """Pieces of rendered chats as token ids. Raises ValueError where one has not a place for each of its images and
        videos."""
        # The chat template has already written every special token.
        encoded = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return [
            self._expand(text, np.asarray(ids, np.int32), shown)
            for text, ids, shown in zip(texts, encoded, media, strict=True)
        ]

    def turns(self, question: str, history: Sequence[Turn], values: Mapping[str, Any], asks: Role) -> list[Turn]:
        """The turns of a prompt, as in `render_all`. Raises ValueError where the prompt template cannot be rendered."""
        shown = self._template.render(question, values) if asks == "user" else question
        turns = [*history, Turn(role=asks, content=shown)]
        if self._system_prompt and turns[0].role != "system":
            turns.insert(0, Turn(role="system", content=self._system_prompt))
        return turns

    def _render(self, question: str, history: Sequence[Turn], values: Mapping[str, Any], asks: Role) -> str:
        turns = self.turns(question, history, values, asks)
        messages = [{"role": turn.role, "content": chat_content(turn.content)} for turn in turns]
        for message in messages:
            self._check_texts(message["content"])
        try:
            return self.chat(messages)
        except ValueError as error:
            raise ValueError(f"the chat template cannot render the prompt {question!r}: {error}") from None

    def _check_texts(self, content: Content) -> None:
        """Of a message: a place of an image may be written like the model's own token, and is none of its texts."""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            self.tokens.check_text(part.get("text", ""), name="the prompt")

    def chat(self, messages: Sequence[Mapping[str, Any]], *, answering: bool = True) -> str:
        """The text of a chat, with the beginning of the model's next turn if it is `answering`. Raises ValueError where
        the template cannot render it."""
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                chat_template=self._chat_template,
                tokenize=False,
                add_generation_prompt=answering,
                **self._chat_template_kwargs,
            )
        except (jinja2.TemplateError, TypeError) as error:
            # A template for text only concatenates contents, and raises TypeError for a list of parts.
            raise ValueError(str(error)) from None
        return text

    def _expand(self, text: str, ids: Int32Array, media: Media) -> RenderedPrompt:
        places = np.flatnonzero(np.isin(ids, [self.vision.image_token_id or -1, self.vision.video_token_id or -1]))
        is_video = ids[places] == self.vision.video_token_id
        for kind, found, given in (
            ("image", int((~is_video).sum()), len(media.images)),
            ("video", int(is_video.sum()), len(media.videos)),
        ):
            if found != given:
                raise ValueError(f"{found} {kind} token(s) and {given} {kind}(s) in the prompt {text!r}")
        images, videos = iter(media.images), iter(media.videos)
        pieces, done = [], 0
        for place, video in zip(places.tolist(), is_video.tolist(), strict=True):
            pieces.append(ids[done:place])
            pieces.append(self.vision.of_video(next(videos)) if video else self.vision.of_image(*next(images)))
            done = place + 1
        pieces.append(ids[done:])
        whole = np.concatenate(pieces)
        return RenderedPrompt(
            text=text, engine_token_ids=ids, token_ids=self.vision.joined(whole) if len(places) else whole
        )


def _chat_template(folder: Path) -> str | None:
    """The processor's chat template, which older vision-language checkpoints store apart from the tokenizer."""
    from transformers import ProcessorMixin

    template: str | dict[str, str] | None = ProcessorMixin.get_processor_dict(folder)[0].get("chat_template")
    return template.get("default") if isinstance(template, dict) else template


def replace_chat_template(folder: Path, template: str) -> None:
    """Make `template` the only chat template of a Hugging Face folder. Files are replaced, never changed in place, so
    those of a linked checkpoint stay as they are."""
    atomic_write_text(folder / _TEMPLATE_FILE, template)
    (folder / _OLDER_FILE).unlink(missing_ok=True)
    if (folder / _OTHERS_FOLDER).is_dir():
        remove_folder(folder / _OTHERS_FOLDER)
    for path in (folder / name for name in _SETTINGS_FILES):
        settings = read_json(path) if path.is_file() else {}
        if settings.pop("chat_template", None) is not None:
            atomic_write_json(path, settings)
