"""What a step leaves besides checkpoints."""

from pathlib import Path

from rl_core.run_directory import RunDirectory
from tasks.resuming.training_start import first_loss, step_files


def test_the_validation_before_training_belongs_to_the_first_step() -> None:
    run, validated = RunDirectory(Path("run")), {0, 2}
    assert step_files(run, validated, 1) == [run.rollouts(1), run.validation(0)]
    assert step_files(run, validated, 2) == [run.rollouts(2), run.validation(2)]
    assert step_files(run, validated, 3) == [run.rollouts(3)]


def test_before_the_first_step_nothing_is_lost(tmp_path: Path) -> None:
    """A run that begins has no validation yet, and one that was stopped before its first checkpoint makes it again."""
    assert first_loss(RunDirectory(tmp_path), [], until=0) is None
    assert first_loss(RunDirectory(tmp_path), [], until=1) is not None
