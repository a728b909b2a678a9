"""`sightline import easyr1` writes a config that loads, and says what is lost."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from rl_core.config.loading import load_config
from tests.rl_core.config.easyr1.example import every_key


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
    shown = CliRunner().invoke(app, ["import", "easyr1", str(example), *overrides, "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    config = load_config(tmp_path / "new.yaml")
    assert (config.seed, config.data.prompt_template, config.reward.function) == (5, "own.jinja", "own.py:score")
    text = " ".join(shown.output.split())
    assert "worker.rollout.tensor_parallel_size = 2: A run takes one device yet." in text
    assert "worker.actor.padding_free = True: Sequences are always packed" in text
    assert "sightline plan new.yaml" in text


def test_a_secret_of_the_command_line_is_not_written(example: Path, tmp_path: Path) -> None:
    overrides = ["worker.reward.reward_function_kwargs.api_key=geheim", "trainer.judge='http://u:geheim@h/'"]
    shown = CliRunner().invoke(app, ["import", "easyr1", str(example), *overrides, "--out", "new.yaml"])
    assert shown.exit_code == 0, shown.output
    written = (tmp_path / "new.yaml").read_text()
    assert "reward_function_kwargs.api_key=***" in written
    assert "geheim" not in written + shown.output


def test_an_existing_config_is_replaced_only_when_told(example: Path, tmp_path: Path) -> None:
    before = example.read_text()
    refused = CliRunner().invoke(app, ["import", "easyr1", str(example)])
    assert isinstance(refused.exception, ValueError)
    assert "--force" in str(refused.exception)
    assert example.read_text() == before
    assert CliRunner().invoke(app, ["import", "easyr1", str(example), "--force"]).exit_code == 0
    assert example.read_text() != before
