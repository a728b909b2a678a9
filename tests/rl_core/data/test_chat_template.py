import json
import os

import pytest
from transformers import AutoProcessor, AutoTokenizer

from rl_core.data.chat import ChatRenderer, replace_chat_template

OLD, NEW = "OLD{{ messages[0]['content'] }}", "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def linked(tiny_folder, tmp_path):
    """A checkpoint's folder of which every file is a second name of a finished one, as a run's initial model is."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny_folder("qwen2_5_vl").iterdir():
        os.link(path, folder / path.name)
    return folder


def add_older_forms(folder):
    """Every place in which a checkpoint may keep a template."""
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": OLD}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(OLD)
    for name in ("tokenizer_config.json", "processor_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(settings | {"chat_template": OLD}))


@pytest.mark.parametrize("older", [False, True])
def test_everything_that_reads_the_folder_gets_the_new_template(linked, older):
    if older:
        add_older_forms(linked)
    replace_chat_template(linked, NEW)
    expected = "[user]Hi"
    for loader in (AutoProcessor, AutoTokenizer):
        assert loader.from_pretrained(linked).apply_chat_template(MESSAGES, tokenize=False) == expected
    assert ChatRenderer(linked, prompt_template=None, system_prompt=None).render("Hi").text == expected


def test_the_checkpoint_that_was_linked_stays_as_it_was(tiny_folder, linked):
    source = tiny_folder("qwen2_5_vl")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    replace_chat_template(linked, NEW)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
