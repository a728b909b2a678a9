"""Texts that would change the form of a chat, and models whose responses would not end, are named with their keys."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rl_core.planning.token_rules import token_problems

CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
ADDED = [
    {"id": number, "content": token, "special": True}
    for number, token in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>"))
]


@pytest.fixture
def checkpoint(tmp_path) -> Callable[..., str]:
    """The override that takes a checkpoint whose generation config and tokenizer name these ends."""

    def write(generation: Any, eos: str | None = "<|im_end|>") -> str:
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        files = {
            "generation_config.json": {"eos_token_id": generation},
            "config.json": {"image_token_id": 3},
            "tokenizer.json": {"added_tokens": ADDED},
            "tokenizer_config.json": {"eos_token": eos, "chat_template": CHATML},
        }
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
        return f"model.source={{type: pretrained, path: {folder}}}"

    return write


@pytest.mark.parametrize("family", ["qwen2_5", "qwen2_5_vl"])
def test_a_text_of_the_config_with_a_control_token_is_one_problem(configure, tmp_path, family):
    template = tmp_path / "whole chat.jinja"
    template.write_text("<|im_start|>user\n{{ content }}<|im_end|>\n<|im_start|>assistant\nStep by step:")
    config = configure(
        f"model.source.family={family}",
        f"data.prompt_template={template}",
        "data.system_prompt='<|im_start|>system\nYou add numbers.<|im_end|>'",
        "cold_start={steps: 2, target_template: '{{ answer }}<|im_end|>'}",
    )
    found = {problem.where: str(problem) for problem in token_problems(config)}
    assert found.keys() == {"data.system_prompt", "data.prompt_template", "cold_start.target_template"}
    for words in found.values():
        assert (
            "it contains <|im_end|>, which the model reserves for the form of its chats; write the text alone" in words
        )
    assert all(problem.fatal for problem in token_problems(config))


def test_a_text_without_them_and_a_vision_token_where_there_is_no_vision_are_no_problem(configure):
    plain = "cold_start={steps: 2, target_template: '<think></think><answer>{{ answer }}</answer>'}"
    assert not list(token_problems(configure(plain, "data.system_prompt=Answer with </s>.")))
    vision = "data.system_prompt=Mind <|image_pad|>"
    assert not list(token_problems(configure("model.source.family=llama", vision)))
    assert [problem.where for problem in token_problems(configure(vision))] == ["data.system_prompt"]


@pytest.mark.parametrize("key", ["data.prompt_template", "data.override_chat_template"])
@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_template_that_cannot_be_read_is_named_elsewhere(configure, tmp_path, content, key):
    if content is not None:
        (tmp_path / "own.jinja").write_bytes(content)
    assert not list(token_problems(configure(f"{key}={tmp_path / 'own.jinja'}")))


def test_a_variable_that_the_chat_template_does_not_use_is_named(configure, checkpoint):
    given = "data.chat_template_kwargs={messages: [], enable_thinkin: false}"
    (problem,) = token_problems(configure(checkpoint([2]), given))
    assert problem.where == "data.chat_template_kwargs"
    assert "'enable_thinkin'" in problem.what


@pytest.mark.parametrize("content", ["[]", "{"])
def test_a_damaged_file_of_the_tokenizer_is_named(configure, checkpoint, tmp_path, content):
    config = configure(checkpoint([2]))
    (tmp_path / "checkpoint" / "tokenizer.json").write_text(content)
    (problem,) = token_problems(config)
    assert (problem.where, problem.fatal) == ("model.source", True)
    assert "tokenizer.json is no" in problem.what.lower()


def test_a_checkpoint_shows_its_own_control_tokens(configure, checkpoint):
    (problem,) = token_problems(configure(checkpoint([2]), "data.system_prompt=<|image_pad|>"))
    assert problem.where == "data.system_prompt"


def test_agreeing_files_are_no_problem_and_differing_ones_are_a_warning(configure, checkpoint, tmp_path):
    lost = configure(checkpoint(0))
    (problem,) = token_problems(lost)
    assert (problem.where, problem.fatal) == ("model.source", False)
    assert "its files differ in what ends a response: eos_token_id in generation_config.json is <|endoftext|>" in str(
        problem
    )
    generation = tmp_path / "checkpoint" / "generation_config.json"
    for agreeing in ([2, 0], 2, [2]):
        generation.write_text(json.dumps({"eos_token_id": agreeing}))
        assert not list(token_problems(lost))
    other = tmp_path / "other.jinja"
    other.write_text(CHATML.replace("<|im_end|>", "<|endoftext|>"))
    generation.write_text(json.dumps({"eos_token_id": 2}))
    (problem,) = token_problems(
        configure(
            f"model.source={{type: pretrained, path: {tmp_path / 'checkpoint'}}}",
            f"data.override_chat_template={other}",
        )
    )
    assert "the end of a turn in the chat template is <|endoftext|>" in problem.what


@pytest.mark.parametrize("generation", [[], [3], [99]])
def test_a_model_whose_end_cannot_be_sampled_is_refused(configure, checkpoint, tmp_path, generation):
    endless = tmp_path / "endless.jinja"
    endless.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    config = configure(checkpoint(generation, None), f"data.override_chat_template={endless}")
    (problem,) = token_problems(config)
    assert problem.fatal
    assert "no token that can be sampled ends a response" in problem.what


def test_a_checkpoint_that_is_not_here_has_none_yet(configure):
    source = "model.source={type: pretrained, path: nobody/never-downloaded}"
    assert not list(token_problems(configure(source, "data.system_prompt=<|im_end|>")))
