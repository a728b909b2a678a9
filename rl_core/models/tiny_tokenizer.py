"""The tokenizer of the tiny models, a byte-level BPE that is trained on a corpus, and its chat template."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AddedToken, Qwen2Tokenizer

from rl_core.families.family import MAX_POSITIONS, Family
from rl_core.planning.model_tokens import PAD_TOKEN, TEXT_SPECIAL_TOKENS, TURN_END_TOKEN

_CHAT_TEMPLATE = """\
{%- if tools -%}
    {{- '<|im_start|>system' -}}
    {%- for tool in tools -%}
        {{- '\\n' + tool['function']['name'] + '(' + tool['function']['parameters']['properties'] | join(', ') + ')' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {%- if message['content'] is string -%}
        {{- message['content'] -}}
    {%- else -%}
        {%- for part in message['content'] -%}
            {%- if part['type'] == 'image' -%}
                {{- 'IMAGE' -}}
            {%- elif part['type'] == 'video' -%}
                {{- 'VIDEO' -}}
            {%- elif part['type'] == 'text' -%}
                {{- part['text'] -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {%- for call in message['tool_calls'] or [] -%}
        {{- '<tool_call>' + call['function'] | tojson + '</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def train_tokenizer(corpus: Iterable[str], *, family: Family, max_vocab_size: int, size: int = 0) -> Qwen2Tokenizer:
    """Train a byte-level BPE on `corpus`, followed by special tokens: Qwen's of text, and the family's own for images.
    Of at least `size` tokens, those that the corpus does not fill are none into which a text is split. Equal texts in
    equal order give equal tokenizers."""
    vision = family.vision
    special_tokens = TEXT_SPECIAL_TOKENS + (() if vision is None else vision.special_tokens)
    text_tokens = () if vision is None else vision.text_tokens
    added = len(special_tokens) + len(text_tokens)
    vocabulary, merges = _train_bpe(_with_roles(corpus), vocab_size=max_vocab_size - added)
    vocabulary |= {f"unused {number}": number for number in range(len(vocabulary), size - added)}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=merges,
        eos_token=TURN_END_TOKEN,
        pad_token=PAD_TOKEN,
        extra_special_tokens=list(special_tokens),
        model_specific_special_tokens={} if vision is None else dict(vision.named_tokens),
        model_max_length=MAX_POSITIONS,
        padding_side="left",
    )
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in text_tokens])
    tokenizer.chat_template = _chat_template(family)
    return tokenizer


def _chat_template(family: Family) -> str:
    vision = family.vision
    image, video = ("", "") if vision is None else (vision.image_text, vision.video_text or "")
    return _CHAT_TEMPLATE.replace("IMAGE", image).replace("VIDEO", video)


def _with_roles(corpus: Iterable[str]) -> Iterator[str]:
    """The texts together with the role lines of the chat template, so that these become single tokens."""
    for text in corpus:
        yield from ("system\n", "user\n", text, "assistant\n")


def _train_bpe(corpus: Iterable[str], *, vocab_size: int) -> tuple[dict[str, int], list[Any]]:
    """Vocabulary and merges, trained on words that are split exactly as in Qwen2Tokenizer."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer=trainer)
    trained = json.loads(bpe.to_str())["model"]
    return trained["vocab"], [(left, right) for left, right in trained["merges"]]
