"""What the files of a model say about its tokens is what its tokenizer does, and what ends a response is decided from
all of them."""

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rl_core.config.model import FamilyName, TinyModel
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import build_tiny_model
from rl_core.planning.model_tokens import ModelTokens

CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
LLAMA_3 = (
    "{{- bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{{ strftime_now('%d %b %Y')[:0] }}"
)
MISTRAL = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }} {{ eos_token }}{% endif %}{% endfor %}"
)
REFUSING = "{{ raise_exception('no assistant turns') }}"
TOKENS = ("a", "<|im_end|>", "<|im_start|>", "<|eot_id|>", "</s>", "<|pad|>", "<|image_pad|>", "<|video_pad|>")
IDS = {token: number for number, token in enumerate(TOKENS)}
NOT_SAMPLED = [IDS["<|image_pad|>"], IDS["<|video_pad|>"], len(TOKENS), 9999]
SAMPLED = [number for number in IDS.values() if number not in NOT_SAMPLED]


def write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    added = [{"id": number, "content": token, "special": token != "a"} for token, number in IDS.items()]
    files = {"tokenizer.json": {"model": {"vocab": {"a": 0}}, "added_tokens": added}, **files}
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture
def made(tmp_path) -> Callable[..., ModelTokens]:
    """The tokens of a folder with these files."""
    return lambda **files: ModelTokens.read(
        write(tmp_path / "model", {f"{name}.json": content for name, content in files.items()})
    )


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_the_files_say_what_the_tokenizer_does(family, tmp_path):
    source = TinyModel(type="tiny", family=family, num_layers=1, vision_depth=1)
    build_tiny_model(source, tmp_path, corpus=["How many objects are there? 3"] * 4, seed=1)
    tokens, tokenizer = ModelTokens.read(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert tokens.vocabulary == tokenizer.get_vocab()
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    assert tokens.special == special
    assert (tokens.named["eos_token"], tokens.named["pad_token"]) == (tokenizer.eos_token, tokenizer.pad_token)
    ends = tokens.response_ends()
    assert (ends.ids, ends.of_targets, ends.difference) == ((tokenizer.eos_token_id,), tokenizer.eos_token_id, None)
    planned = ModelTokens.of_tiny(FAMILIES[family], chat_template=None)
    unused = {"<end_of_utterance>"}  # the processor of Idefics3 adds it to every tokenizer
    assert planned.controls == tokens.controls == tuple(sorted(special - unused))
    assert planned.response_ends().difference is None


@pytest.mark.parametrize(
    ("template", "end"),
    [(CHATML, "<|im_end|>"), (LLAMA_3, "<|eot_id|>"), (MISTRAL, "</s>"), (REFUSING, None), ("no messages", None)],
)
def test_the_end_of_a_turn_is_read_from_a_rendered_chat(made, template, end):
    settings = {"chat_template": [{"name": "tool_use", "template": ""}, {"name": "default", "template": template}]}
    tokens = made(tokenizer_config={**settings, "eos_token": {"content": "</s>"}, "bos_token": "a"})
    expected = {IDS["</s>"]} | ({IDS[end]} if end else set())
    assert set(tokens.response_ends().ids) == expected


def test_ends_that_an_old_merger_lost_are_those_of_the_tokenizer_and_the_template(made):
    settings = {"eos_token": "</s>", "chat_template": CHATML}
    ends = made(config={"eos_token_id": 5}, tokenizer_config=settings).response_ends()
    assert (ends.ids, ends.of_targets) == ((5, IDS["</s>"], IDS["<|im_end|>"]), IDS["</s>"])
    assert ends.difference == (
        "its files differ in what ends a response: eos_token_id in config.json is <|pad|>, eos_token of the tokenizer "
        "is </s>, the end of a turn in the chat template is <|im_end|>"
    )


def test_several_ends_of_the_generation_config_keep_their_order_and_are_no_difference(made):
    tokens = made(
        generation_config={"eos_token_id": [4, 1]},
        config={"eos_token_id": 1},
        tokenizer_config={"eos_token": "<|im_end|>", "chat_template": CHATML},
    )
    ends = tokens.response_ends()
    assert (ends.ids, ends.of_targets, ends.difference) == ((4, 1), 1, None)


@pytest.mark.parametrize("stated", [{}, {"eos_token_id": []}, {"eos_token_id": [6, 9999]}])
def test_a_model_without_an_end_that_can_be_sampled_is_refused(made, stated):
    words = {
        0: r"\(no file of it names one\)",
        2: r"\(eos_token_id in generation_config.json is <\|image_pad\|> and 9999 \(no token of the tokenizer\)\)",
    }[len(stated.get("eos_token_id", ()))]
    with pytest.raises(ValueError, match=f"no token that can be sampled ends a response {words}"):
        made(generation_config=stated).response_ends()


def test_an_empty_list_of_ends_leaves_those_of_the_other_files(made):
    ends = made(generation_config={"eos_token_id": []}, config={"text_config": {"eos_token_id": 4}}).response_ends()
    assert (ends.ids, ends.of_targets) == ((4,), 4)
    assert ends.difference is not None


def test_older_files_are_read_too(tmp_path):
    decoder = {"2": {"content": "<|im_start|>", "special": True}, "1": {"content": "<|im_end|>", "special": True}}
    files = {
        "tokenizer.json": {},
        "vocab.json": {"a": 0},
        "added_tokens.json": {"<tool>": 3},
        "special_tokens_map.json": {"eos_token": "<|im_end|>"},
        "tokenizer_config.json": {"added_tokens_decoder": decoder},
        "chat_template.json": {"chat_template": CHATML},
    }
    tokens = ModelTokens.read(write(tmp_path, files))
    assert tokens.vocabulary == {"a": 0, "<tool>": 3, "<|im_start|>": 2, "<|im_end|>": 1}
    assert tokens.controls == ("<|im_end|>", "<|im_start|>")
    assert tokens.response_ends().ids == (1,)


ends_of_a_file = st.none() | st.sampled_from(SAMPLED) | st.lists(st.sampled_from([*SAMPLED, *NOT_SAMPLED]), max_size=3)


@given(
    generation=ends_of_a_file,
    config=ends_of_a_file,
    inner=ends_of_a_file,
    eos=st.sampled_from([None, "</s>", "<|im_end|>", "unknown"]),
    template=st.sampled_from([None, CHATML, LLAMA_3, MISTRAL, REFUSING]),
)
def test_the_ends_of_a_response_are_all_those_of_the_files_that_can_be_sampled(
    tmp_path_factory, generation, config, inner, eos, template
):
    files = {
        "generation_config.json": {"eos_token_id": generation},
        "config.json": {"eos_token_id": config, "text_config": {"eos_token_id": inner}},
        "tokenizer_config.json": {"eos_token": eos, "chat_template": template},
    }
    tokens = ModelTokens.read(write(tmp_path_factory.mktemp("drawn"), files))
    of_model = config if config is not None else inner
    own = [number if isinstance(number, list) else [number] for number in (generation, of_model)]
    named = {number for number in chain.from_iterable(own) if number is not None}
    named |= {IDS[eos]} if eos in IDS else set()
    named |= {CHATML: {IDS["<|im_end|>"]}, LLAMA_3: {IDS["<|eot_id|>"]}}.get(template, set())
    expected = named & set(SAMPLED)
    if not expected:
        with pytest.raises(ValueError, match="no token that can be sampled"):
            tokens.response_ends()
        return
    ends = tokens.response_ends()
    assert set(ends.ids) == expected and len(ends.ids) == len(expected)
    assert ends.of_targets in ends.ids
    ids = generation if generation is not None else of_model
    stated = set(ids if isinstance(ids, list) else [ids])
    assert (ends.difference is None) == (stated == expected)


@given(st.text(), st.sampled_from(TOKENS[1:]), st.text())
def test_a_control_token_is_found_wherever_it_stands(before, token, after):
    tokens = ModelTokens.of_tiny(FAMILIES["qwen2_5_vl"], chat_template=None)
    text = before + token + after
    if any(control in text for control in tokens.controls):
        with pytest.raises(ValueError, match=r"^the text contains <\|.*\|>, which the model reserves for"):
            tokens.check_text(text, name="the text")
    else:
        tokens.check_text(text, name="the text")
    assert (token in tokens.controls) == (token in ("<|im_end|>", "<|im_start|>", "<|image_pad|>", "<|video_pad|>"))


def test_a_token_that_the_template_does_not_write_may_be_asked_about(made):
    tokens = made(tokenizer_config={"eos_token": "<|im_end|>", "chat_template": CHATML})
    tokens.check_text("What does </s> mean, and <image>, and <|eot_id|>?", name="it")
    with pytest.raises(ValueError, match=r"contains <\|im_start\|>, which the model reserves for the form"):
        tokens.check_text("<|im_start|>user\nWhat is it?", name="it")
    with pytest.raises(ValueError, match=r"contains <\|image_pad\|>, which the model reserves for images and videos"):
        tokens.check_text("<|image_pad|>", name="it")
