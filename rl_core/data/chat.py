"""Renders a question as the model's chat prompt, in text and in token ids, without touching a pixel."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np

from rl_core.data.prompts import PromptTemplate, chat_content
from rl_core.data.rows import Turn
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ImageSize = tuple[int, int]
"""Width and height, pixels."""

_VISION_KEYS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedPrompt:
    """A chat prompt.

    Attributes:
        text: As it was tokenised, one placeholder an image.
        engine_token_ids: [E] int32, one placeholder token an image: vLLM expands it itself.
        token_ids: [P] int32, every image expanded to one token a merged patch, as the model's processor does.
    """

    text: str
    engine_token_ids: Int32Array
    token_ids: Int32Array


class ChatRenderer:
    """Applies a model's chat template and tokenizer to questions.

    Args:
        model_folder: Hugging Face folder; tokenizer, processor and chat template are read, weights are not.
        prompt_template: Jinja file around each question, or the template itself, or None.
        system_prompt: Text of a system message before the question, or None.
        trust_remote_code: Allow the folder to run its own Python code.

    Raises:
        ValueError: The model has no chat template, or a template is wrong.
    """

    def __init__(
        self,
        model_folder: Path,
        *,
        prompt_template: str | PromptTemplate | None,
        system_prompt: str | None,
        trust_remote_code: bool = False,
    ) -> None:
        # transformers takes seconds to import, and planning a run imports this module.
        from transformers import AutoTokenizer

        self._folder = model_folder
        if not isinstance(prompt_template, PromptTemplate):
            prompt_template = PromptTemplate.load(prompt_template)
        self._template = prompt_template
        self._system_prompt = system_prompt
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_folder, trust_remote_code=trust_remote_code
        )
        self._chat_template = _chat_template(model_folder) or self.tokenizer.chat_template
        if self._chat_template is None:
            raise ValueError(f"the model in {model_folder} has no chat template (chat_template.jinja)")
        vision_ids = _vision_token_ids(model_folder)
        self.image_token_id: int | None = vision_ids.get("image_token_id")
        self._vision_tokens = tuple(self.tokenizer.convert_ids_to_tokens(list(vision_ids.values())))
        self._image_processor = _image_processor(model_folder, trust_remote_code) if vision_ids else None
        self._image_tokens = lru_cache(maxsize=None)(self._count_image_tokens)

    @property
    def reads_images(self) -> bool:
        """Whether the model is a vision-language model."""
        return self._image_processor is not None

    def check_question(self, question: str) -> None:
        """Raises ValueError when the question spells one of the model's vision tokens: it would become a token that
        has no image behind it."""
        for token in self._vision_tokens:
            if token in question:
                raise ValueError(f"the question contains {token}, which the model reserves for its images")

    def image_tokens(self, width: int, height: int) -> int:
        """Tokens that an image of this size takes: t x h x w / merge_size^2 of its patch grid.

        Raises:
            ValueError: The model reads no images, or its processor refuses the size.
        """
        return self._image_tokens(width, height)

    def _count_image_tokens(self, width: int, height: int) -> int:
        processor = self._image_processor
        if processor is None:
            raise ValueError(f"the model in {self._folder} reads no images")
        patches: int = processor.get_number_of_image_patches(height, width)
        merge_size: int = processor.merge_size
        return patches // merge_size**2

    def render(self, question: str, image_sizes: Sequence[ImageSize] = ()) -> RenderedPrompt:
        """One prompt; `image_sizes` in the order of the question's image places. Raises ValueError as render_all."""
        return self.render_all([question], [image_sizes], histories=[()])[0]

    def render_all(
        self,
        questions: Sequence[str],
        image_sizes: Sequence[Sequence[ImageSize]],
        *,
        histories: Sequence[Sequence[Turn]],
    ) -> list[RenderedPrompt]:
        """Many prompts at once, which tokenises faster.

        Args:
            questions: The last turn of each prompt, before the prompt template.
            image_sizes: Sizes of each prompt's images, in the order of their places.
            histories: The turns before each question. A system turn of its own stands in place of the configured one.

        Raises:
            ValueError: A prompt's image tokens are not one for each of its images, or the chat template refuses it;
                names the question.
        """
        if not questions:
            return []
        texts = [self._render(question, history) for question, history in zip(questions, histories, strict=True)]
        # The chat template has written every special token already.
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [
            self._expand(text, np.asarray(ids, np.int32), sizes)
            for text, ids, sizes in zip(texts, encoded, image_sizes, strict=True)
        ]

    def _render(self, question: str, history: Sequence[Turn]) -> str:
        """The chat prompt as text."""
        turns = [*history, Turn(role="user", content=self._template.render(question))]
        if self._system_prompt and turns[0].role != "system":
            turns.insert(0, Turn(role="system", content=self._system_prompt))
        messages = [{"role": turn.role, "content": chat_content(turn.content)} for turn in turns]
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, chat_template=self._chat_template, tokenize=False, add_generation_prompt=True
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template cannot render the prompt {question!r}: {error}") from None
        return text

    def _expand(self, text: str, ids: Int32Array, sizes: Sequence[ImageSize]) -> RenderedPrompt:
        places = np.flatnonzero(ids == self.image_token_id) if self.reads_images else np.empty(0, np.int64)
        if len(places) != len(sizes):
            raise ValueError(f"{len(places)} image token(s) and {len(sizes)} image(s) in the prompt {text!r}")
        repeats = np.ones(len(ids), np.int64)
        repeats[places] = [self.image_tokens(*size) for size in sizes]
        return RenderedPrompt(text=text, engine_token_ids=ids, token_ids=np.repeat(ids, repeats))


def _chat_template(folder: Path) -> str | None:
    """The processor's chat template, which older vision-language checkpoints keep apart from the tokenizer's."""
    from transformers import ProcessorMixin

    template: str | dict[str, str] | None = ProcessorMixin.get_processor_dict(folder)[0].get("chat_template")
    return template.get("default") if isinstance(template, dict) else template


def _vision_token_ids(folder: Path) -> dict[str, int]:
    """The ids that the model's config reserves for images and videos; empty for a text-only model."""
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no model folder: it has no config.json")
    config = json.loads(path.read_text(encoding="utf-8"))
    return {key: config[key] for key in _VISION_KEYS if config.get(key) is not None}


def _image_processor(folder: Path, trust_remote_code: bool) -> Any:
    """The part of the processor that knows the patch grid. The PIL backend needs no torchvision; the grid is the
    same. Raises ValueError for a processor that cannot tell an image's tokens from its size."""
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(folder, backend="pil", trust_remote_code=trust_remote_code)
    if not hasattr(processor, "get_number_of_image_patches") or not hasattr(processor, "merge_size"):
        raise ValueError(f"{type(processor).__name__} of {folder} is not supported: use a Qwen2, Qwen2.5 or Qwen3 VL")
    return processor
