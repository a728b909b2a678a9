"""`sightline import easyr1` writes a config that loads, and says what is lost."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from rl_core.config.loading import load_config
from tasks.cache.named_files import located_config
from tests.sightline_tools.easyr1.example import every_key


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(every_key()))
    (tmp_path / "own.jinja").write_text("{{ content }}")
    (tmp_path / "own.py").write_text("def score(inputs): ...\n")
    return path


def test_the_config_is_written_and_what_is_lost_is_shown(example: Path, tmp_path: Path) -> None:
    overrides = ["data.format_prompt=own.jinja", "worker.reward.reward_function=own.py:score", "data.seed=5"]
    overrides.append("worker.rollout.ignore_eos=true")
    shown = CliRunner().invoke(app, ["import", "easyr1", str(example), *overrides, "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    config = load_config(tmp_path / "new.yaml")
    assert (config.seed, config.data.prompt_template, config.reward.function) == (5, "own.jinja", "own.py:score")
    text = " ".join(shown.output.split())
    assert "worker.rollout.ignore_eos = True: A response ends at its end-of-sequence token." in text
    assert "worker.actor.optim.weight_decay = 0.01: Weight decay applies to matrices" in text
    assert "not needed (docs/migration.md says why) data.val_batch_size" in text
    assert "worker.actor.padding_free" in text
    assert "sightline plan new.yaml" in text


FILES = ["data.format_prompt=own.jinja", "worker.reward.reward_function=own.py:score"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["config=config.yaml", *FILES],
        [*FILES, "config=config.yaml"],
        [*FILES, "config.yaml"],
    ],
)
def test_the_command_line_of_easyr1_is_understood(example: Path, tmp_path: Path, arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, ["import", "easyr1", *arguments, "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    config = load_config(tmp_path / "new.yaml")
    assert (config.experiment, config.data.prompt_template) == ("qwen2-5-7b-math-grpo", "own.jinja")
    assert (tmp_path / "new.yaml").read_text().startswith("# From EasyR1: config.yaml data.format_prompt=own.jinja ")


SCRIPT = """#!/bin/bash
set -x
export PYTHONUNBUFFERED=1

MODEL=Qwen/Qwen2.5-VL-3B-Instruct  # replace it with your local file path
PROMPT=\"\"\"Think first.
Then put $1 in a box.\"\"\"

python3 -m verl.trainer.main \\
    config=examples/config.yaml \\
    data.format_prompt=own.jinja worker.reward.reward_function="own.py:score" \\
    worker.actor.model.model_path=${MODEL} \\
    trainer.experiment_name=${NAME:-from_a_script} \\
    trainer.n_gpus_per_node=1 "$@"
"""


def test_the_script_of_an_experiment_is_read(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    example.rename(tmp_path / "examples" / "config.yaml")
    script = tmp_path / "examples" / "qwen.sh"
    script.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path / "examples")
    shown = CliRunner().invoke(app, ["import", "easyr1", "qwen.sh", "data.seed=5", "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    config = load_config(tmp_path / "examples" / "new.yaml")
    assert config.model.source.path == "Qwen/Qwen2.5-VL-3B-Instruct"
    reward = f"{tmp_path / 'own.py'}:score"
    assert (config.experiment, config.seed, config.reward.function) == ("from-a-script", 5, reward)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo nothing\n", "calls `python3 -m verl.trainer.main` 0 times"),
        ("python3 -m verl.trainer.main a=$B\n", "the variable $B has no value in the script"),
        ("echo 'open\n", "is no shell script that can be read"),
    ],
)
def test_a_script_that_says_no_training_is_refused_by_its_name(tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "x.sh"
    script.write_text(text)
    refused = CliRunner().invoke(app, ["import", "easyr1", str(script), "--out", str(tmp_path / "new.yaml")])
    assert str(script) in str(refused.exception) and words in str(refused.exception)


def test_two_files_are_one_too_many(example: Path) -> None:
    refused = CliRunner().invoke(app, ["import", "easyr1", "config.yaml", "config=other.yaml", "--out", "new.yaml"])
    assert "config.yaml and other.yaml" in str(refused.exception)


@pytest.mark.parametrize("command", ["plan", "run", "train"])
def test_another_command_names_the_import(example: Path, command: str) -> None:
    shown = CliRunner().invoke(app, [command, "config.yaml"])
    assert "config.yaml is a configuration of EasyR1: `sightline import easyr1 config.yaml" in str(shown.exception)


def test_a_refused_import_writes_nothing(example: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["import", "easyr1", "config.yaml", *FILES, "data.seed=x", "--out", "new.yaml"])
    assert "data.seed = x: must be a whole number" in str(shown.exception)
    assert not (tmp_path / "new.yaml").exists()


def test_a_secret_of_the_command_line_is_not_written(example: Path, tmp_path: Path) -> None:
    overrides = [
        *FILES,
        "worker.reward.reward_function_kwargs.api_key=geheim",
        "trainer.judge='http://u:geheim@h/'",
    ]
    shown = CliRunner().invoke(app, ["import", "easyr1", str(example), *overrides, "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    written = (tmp_path / "new.yaml").read_text()
    assert "reward_function_kwargs.api_key=***" in written
    assert "geheim" not in written + shown.output


def test_an_existing_config_is_replaced_only_on_request(example: Path, tmp_path: Path) -> None:
    before = example.read_text()
    refused = CliRunner().invoke(app, ["import", "easyr1", str(example)])
    assert isinstance(refused.exception, ValueError)
    assert "--force" in str(refused.exception)
    assert example.read_text() == before
    assert CliRunner().invoke(app, ["import", "easyr1", str(example), *FILES, "--force"]).exit_code == 0
    assert example.read_text() != before


@pytest.mark.parametrize("place", ["new.yaml", "configs/new.yaml", "../beside/new.yaml"])
def test_the_paths_hold_from_the_folder_of_the_config_wherever_a_command_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    here = tmp_path / "here"
    (here / "models" / "mine").mkdir(parents=True)
    (here / "rows.jsonl").write_text('{"problem": "2+2?", "answer": "4"}\n')
    (here / "reward.py").write_text(
        "REWARD_NAME = 'mine'\ndef main(inputs): return [{'overall': 1.0} for _ in inputs]\n"
    )
    monkeypatch.chdir(here)
    (here / place).parent.mkdir(parents=True, exist_ok=True)
    given = [
        "data.train_files=rows.jsonl",
        "data.val_files=rows.jsonl",
        "worker.reward.reward_function=reward.py",
        "worker.actor.model.model_path=models/mine",
    ]
    shown = CliRunner().invoke(app, ["import", "easyr1", *given, "--out", place])
    assert shown.exit_code == 0, shown.output
    monkeypatch.chdir(tmp_path)
    config = load_config(here / place)
    located = located_config(config)
    assert Path(located.data.train.path).samefile(here / "rows.jsonl")
    assert Path(located.reward.files[0]).samefile(here / "reward.py")
    assert Path(located.model.source.path).samefile(here / "models" / "mine")
