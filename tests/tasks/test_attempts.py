"""How a run ended is put into words for the run that continues."""

from pathlib import Path
from uuid import uuid4

import pytest

from rl_core.run_directory import RunDirectory
from tasks.attempts import how_it_ended, remember


@pytest.mark.parametrize(
    ("end", "cause", "words"),
    [
        (None, None, "its process was killed"),
        ("failed", "the disk is full", "it failed: the disk is full"),
        ("interrupted", None, "it was interrupted"),
        ("cancelled", None, "it was cancelled"),
        ("completed", None, "it was completed, and called again"),
    ],
)
def test_each_end_has_its_words(tmp_path: Path, end: str | None, cause: str | None, words: str) -> None:
    run = RunDirectory(tmp_path)
    assert how_it_ended(run) == "the run is new here"
    remember(run, str(uuid4()), end=end, cause=cause)
    assert how_it_ended(run) == words


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    (tmp_path / "flow-run.json").write_text("{")
    assert "is not the note of a flow run" in how_it_ended(RunDirectory(tmp_path))
