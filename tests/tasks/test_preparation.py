"""The model's folder as configured."""

from pathlib import Path

import pytest
from huggingface_hub import constants
from transformers import AutoProcessor

from rl_core.config.loading import load_config
from rl_core.models.loading import load_model, write_hf_folder
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.preparation import prepare_run, write_initial_model

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


def test_thoughts_that_a_template_leaves_out_are_a_doubt_of_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SMALL.parents[3])
    thoughts = "(m['content'].split('</think>')[-1] if not loop.last else m['content'])"
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    template = tmp_path / "mine.jinja"
    call = "<tool_call>{{ c['function'] | tojson }}</tool_call>"
    template.write_text(
        f"{{% for m in messages %}}<|im_start|>{{{{ m['role'] }}}}\n"
        f"{{% if m['content'] is string %}}{{{{ {thoughts} }}}}{{% else %}}"
        f"{{% for p in m['content'] %}}{{{{ '{image}' if p['type'] == 'image' else p['text'] }}}}{{% endfor %}}"
        "{% endif %}"
        f"{{% for c in m['tool_calls'] or [] %}}{call}{{% endfor %}}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = load_config(SMALL, ["tools={use: [calculator]}", "cold_start=null", "data.max_prompt_length=99"])
    for chosen, doubts in ((None, 0), (str(template), 1)):
        data = config.data.model_copy(update={"override_chat_template": chosen})
        run = RunDirectory(tmp_path / f"{doubts}")
        prepare_run(config.model_copy(update={"data": data}), run, progress=SilentProgress())
        events = read(run.events) if run.events.is_file() else []
        assert [event["kind"] for event in events] == ["doubt"] * doubts
        assert len([one for one in caplog.messages if "leaves out what a model has thought" in one]) == doubts


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
