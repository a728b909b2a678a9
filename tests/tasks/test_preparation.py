"""The model's folder as configured."""

from pathlib import Path

import pytest
from huggingface_hub import constants
from transformers import AutoProcessor

from rl_core.config.loading import load_config
from rl_core.models.loading import load_model, write_hf_folder
from tasks.preparation import write_initial_model

SMALL = Path(__file__).parents[1] / "e2e" / "configs" / "small.yaml"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("kind", ["tiny", "pretrained"])
def test_an_overridden_chat_template_reaches_the_saved_processor(tmp_path: Path, kind: str) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}")
    config = load_config(SMALL)
    if kind == "pretrained":
        write_initial_model(config, tmp_path / "checkpoint")
        config = load_config(SMALL, [f"model.source={{type: pretrained, path: {tmp_path / 'checkpoint'}}}"])
    config = config.model_copy(
        update={"data": config.data.model_copy(update={"override_chat_template": str(template)})}
    )
    initial, merged = tmp_path / "initial", tmp_path / "merged"
    initial.mkdir()
    write_initial_model(config, initial)
    write_hf_folder(load_model(initial, config.model), processor_folder=initial, folder=merged)
    for folder in (initial, merged):
        processor = AutoProcessor.from_pretrained(folder)
        assert processor.apply_chat_template(MESSAGES, tokenize=False) == "[user]Hi"
        assert processor.tokenizer.apply_chat_template(MESSAGES, tokenize=False) == "[user]Hi"


def test_a_checkpoint_that_is_neither_here_nor_on_the_hub_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config = load_config(SMALL, ["model.source={type: pretrained, path: models/nowhere}"])
    with pytest.raises(OSError, match=r"model\.source\.path: there is no folder models/nowhere, and the hub gave no"):
        write_initial_model(config, tmp_path)


def test_an_architecture_that_is_not_trained_here_is_refused_before_anything_loads_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "stranger"}')
    config = load_config(SMALL, [f"model.source={{type: pretrained, path: {checkpoint}}}"])
    (tmp_path / "initial").mkdir()
    with pytest.raises(ValueError, match=r"architecture 'stranger' is none of .*glm4v, .*internvl, llama"):
        write_initial_model(config, tmp_path / "initial")
