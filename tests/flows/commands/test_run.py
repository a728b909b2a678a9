"""How a command ends: its exit code and what it prints."""

import signal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flows.cli import main
from flows.commands.run import carry_out
from flows.request import RunRequest
from rl_core.checkpoints.manifest import CheckpointInfo, write_manifest
from rl_core.config.loading import ConfigError
from rl_core.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

CONFIG = "tests/e2e/configs/small.yaml"
NO_MLFLOW = "tracking.mlflow_uri=null"


def ended(runs_dir: Path, *overrides: str, flow: str = "prepare", stretch: bool = False) -> tuple[int, str]:
    """Exit code and output of a command."""
    text = StringIO()
    request = RunRequest(config=CONFIG, overrides=[NO_MLFLOW, *overrides], runs_dir=str(runs_dir))
    return carry_out(flow, request, Console(file=text, width=200), stretch=stretch), text.getvalue()


def test_a_part_of_the_pipeline_ends_with_0_and_says_where_it_is(tmp_path: Path) -> None:
    code, text = ended(tmp_path)
    assert code == 0, text
    assert "✓ prepare: finished in" in text and "done" in text
    code, text = ended(tmp_path)
    assert code == 0 and "✓ prepare: finished before" in text
    assert "✓ prepare: taken over from" in ended(tmp_path, "rollout.n=8")[1]


def test_another_file_and_a_stage_that_is_made_again_are_reported(tmp_path: Path) -> None:
    template = tmp_path / "count.jinja"
    template.write_text(Path("configs/prompts/count.jinja").read_text())
    override = f"data.prompt_template={template}"
    runs_dir = tmp_path / "runs"
    assert "is made again" not in ended(runs_dir, override)[1]
    template.write_text(template.read_text() + "!")
    (first,) = runs_dir.iterdir()
    assert f"note {template} changed, so this is another run beside {first.name}" in ended(runs_dir, override)[1]
    run = runs_dir / f"{first.name}-2"
    (run / "data" / "train.parquet").write_bytes(b"altered")
    assert "prepare of" in (text := ended(runs_dir, override)[1]) and "train.parquet has 7 bytes instead of" in text


def test_stretch_answers_for_the_length_alone_and_not_for_an_edited_file(tmp_path: Path) -> None:
    template, runs_dir = tmp_path / "count.jinja", tmp_path / "runs"
    template.write_text(Path("configs/prompts/count.jinja").read_text())
    cosine = [f"data.prompt_template={template}", "actor.optim.lr_scheduler_type=cosine"]
    assert ended(runs_dir, *cosine, "trainer.max_steps=2")[0] == 0
    (first,) = runs_dir.iterdir()
    saved = RunDirectory(first).checkpoints / "step-000002"
    saved.mkdir(parents=True)
    info = CheckpointInfo(step=2, validation_score=None, loader={}, counters={}, model_only=False, interim=False)
    write_manifest(saved, info, written={})
    with pytest.raises(ConfigError, match=f"rate of {first.name} follows its length: with --stretch .*; with --fork"):
        ended(runs_dir, *cosine, "trainer.max_steps=4")
    template.write_text(template.read_text() + "!")
    code, text = ended(runs_dir, *cosine, "trainer.max_steps=4", stretch=True)
    assert code == 0 and f"another run beside {first.name}" in text
    assert [run.name for run in sorted(runs_dir.iterdir())] == [first.name, f"{first.name}-2"]


def test_a_failure_that_a_person_can_correct_is_a_message_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = ended(tmp_path, "data.max_prompt_length=8")
    error = capsys.readouterr().err.rpartition("failed ")[2]
    assert code == 1
    assert "max_prompt_length" in error and "run.log" in text
    assert "Traceback" not in error and "Error" not in error


def test_a_stop_before_a_stage_exits_as_a_shell_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.preflight

    find_problems = tasks.preflight.find_problems

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGTERM)
        return find_problems(*arguments, **options)

    monkeypatch.setattr(tasks.preflight, "find_problems", interrupted)
    code, text = ended(tmp_path)
    assert code == 143
    assert "To continue:\n  sightline run " in text


def test_the_command_line_turns_a_refused_config_into_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["sightline", "plan", "nowhere.yaml"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "no config file" in capsys.readouterr().err
