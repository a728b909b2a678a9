from pathlib import Path

import pytest

from rl_core.data.inspection import find_media_folder, inspect_data
from rl_core.sources.columns import Columns
from rl_core.sources.rows import Row
from tests.rl_core.data.samples import local, png_bytes


def lay(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png_bytes())


@pytest.fixture
def found_for(write_jsonl, tmp_path):
    """`found_for(paths)`: the folder for rows with these images, in a file in rows/."""

    def find(paths):
        (tmp_path / "rows").mkdir(exist_ok=True)
        path = write_jsonl([{"problem": "<image>", "image": one, "answer": "1"} for one in paths], "rows/rows.jsonl")
        return find_media_folder(local(path).reader(), Columns(image_key="image"), folder_of_rows=path.parent)

    return find


def test_a_folder_of_images_next_to_the_rows_needs_no_remark(found_for, tmp_path):
    lay(tmp_path, "rows/images/a.png")
    assert found_for(["images/a.png"]) == (None, None)
    assert found_for([str(tmp_path / "rows" / "images" / "a.png")]) == (None, None)
    assert found_for([{"path": "images/a.png", "bytes": None}]) == (None, None)
    assert found_for([]) == found_for([None]) == found_for(["https://example.org/a.png"]) == (None, None)


def test_absolute_paths_have_the_folder_that_holds_them_all(found_for, tmp_path):
    folder, doubt = found_for([str(tmp_path / "images" / name) for name in ("x/a.png", "y/b.png", "y/../z.png")])
    assert folder == tmp_path / "images"
    assert "lie in" in doubt


def test_absolute_paths_without_a_common_folder_need_a_word(found_for):
    folder, doubt = found_for(["/one/a.png", "/two/b.png"])
    assert folder is None
    assert "--media-dir" in doubt


@pytest.mark.parametrize("place", ["rows/images", "", "rows/other"])
def test_relative_paths_are_looked_for_around_the_rows(found_for, tmp_path, place):
    lay(tmp_path / place, "a/1.png", "a/2.png")
    folder, doubt = found_for(["a/1.png", "a/2.png", "gone.png"])
    assert folder == tmp_path / place
    assert str(folder) in doubt


def test_relative_paths_are_looked_for_where_the_command_is_called(found_for, tmp_path, monkeypatch):
    lay(tmp_path / "elsewhere", "a/1.png")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert found_for(["a/1.png"])[0] == tmp_path / "elsewhere"


def test_where_nothing_is_found_nothing_is_chosen(found_for):
    assert found_for(["a/1.png"]) == (None, None)


def test_the_source_that_is_proposed_reads_the_images(write_jsonl, tmp_path):
    lay(tmp_path / "images", "a.png")
    (tmp_path / "rows").mkdir()
    turns = [{"role": "user", "content": [{"type": "image", "image": str(tmp_path / "images" / "a.png")}]}]
    for row in (
        {"problem": "<image>", "image": str(tmp_path / "images" / "a.png"), "answer": "1"},
        {"messages": turns, "answer": "1"},
    ):
        found = inspect_data(local(write_jsonl([row], "rows/rows.jsonl")))
        (read,) = found.source.open()
        assert isinstance(read, Row)
        assert found.source.media_dir == str(tmp_path / "images")
