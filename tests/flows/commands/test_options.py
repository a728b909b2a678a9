"""Keys that a command line changes, in every command that takes a config."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.options import all_overrides, without_changes
from rl_core.config.loading import load_config
from tasks.cache.stages import run_name

QUICKSTART = "configs/quickstart.yaml"
TAKE_CHANGES = ("run", "prepare", "train", "evaluate", "merge", "report", "plan", "reproduce")


pytestmark = pytest.mark.usefixtures("at_the_root")


def output_of(*arguments: str) -> str:
    """What a command prints or ends with, on one line."""
    done = CliRunner().invoke(app, [*arguments])
    return " ".join(f"{done.output} {done.exception or ''}".split())


@pytest.mark.parametrize("command", TAKE_CHANGES)
def test_a_key_may_be_changed_after_the_config_and_by_the_option(command: str) -> None:
    target = "qwen2_5_vl_3b_geo3k_grpo" if command == "reproduce" else QUICKSTART
    for changes in (["seed=-1"], ["--set", "seed=-1"], ["rollout.n=4", "--set", "trainer.max_steps=1", "seed=-1"]):
        assert "seed: Input should be greater than or equal to 0 (got -1)" in output_of(command, target, *changes)


def test_every_command_that_takes_the_option_takes_them_as_arguments() -> None:
    takes = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback and "overrides" in command.callback.__annotations__
    }
    assert takes == {*TAKE_CHANGES, "fork"}


def test_changes_lead_to_the_run_of_the_changed_config(tmp_path: Path) -> None:
    changes = ["seed=5", "actor.optim.lr=2e-4"]
    text = output_of("plan", QUICKSTART, *changes, "--runs-dir", str(tmp_path))
    assert run_name(load_config(Path(QUICKSTART), changes)) in text


def test_the_option_wins_over_an_argument(tmp_path: Path) -> None:
    text = output_of("plan", QUICKSTART, "--set", "seed=6", "seed=5", "--runs-dir", str(tmp_path))
    assert run_name(load_config(Path(QUICKSTART), ["seed=6"])) in text
    assert all_overrides(["seed=5"], ["seed=6"]) == ["seed=5", "seed=6"]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_folder_of_runs_that_is_a_file_is_refused_at_once(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Invalid value for '--runs-dir'" in output_of(command, QUICKSTART, "--runs-dir", str(tmp_path / "file"))


def test_changes_without_a_config_ask_for_one() -> None:
    assert "give a config file, or a run to resume" in output_of("run", "seed=5")


def test_a_run_that_is_resumed_takes_no_other_recipe(tmp_path: Path) -> None:
    run = tmp_path / "old"
    run.mkdir()
    (run / "config.yaml").write_text(Path(QUICKSTART).read_text())
    for arguments in (["--resume", "old", "seed=5"], [str(run), "seed=5"]):
        assert "seed: another value is another run than old" in output_of(
            "run", *arguments, "--runs-dir", str(tmp_path)
        )


def test_a_file_with_an_equals_sign_in_its_name_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lr=1.yaml"
    file.write_text("")
    assert without_changes([str(file), "seed=1", "name"]) == ([str(file), "name"], ["seed=1"])
    assert without_changes(["a" * 5000 + "=1", "a\0=1"]) == ([], ["a" * 5000 + "=1", "a\0=1"])
