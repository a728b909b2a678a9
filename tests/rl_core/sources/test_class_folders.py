from pathlib import Path

import pytest

from rl_core.sources.rows import BadRow
from tests.rl_core.data.samples import local, png_bytes


@pytest.fixture
def folder(tmp_path) -> Path:
    for number, name in enumerate(
        ("dog/2.png", "cat/1.PNG", "dog/1.png", "cat/notes.txt", "cat/.hidden.png", "empty/x")
    ):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(png_bytes(colour=(number, 0, 0)))
    return tmp_path / "pets"


def test_the_folder_of_a_picture_is_its_answer(folder):
    rows = list(local(folder).open())
    assert [(row.index, row.origin, row.answer) for row in rows] == [
        (0, "cat/1.PNG", "cat"),
        (1, "dog/1.png", "dog"),
        (2, "dog/2.png", "dog"),
    ]
    assert {row.question for row in rows} == {"<image>What does the image show: cat or dog?"}
    assert rows[1].images == (folder / "dog" / "1.png",)
    assert {row.data_source for row in rows} == {"pets"}
    assert local(folder).open().row_count == 3
    assert [row.answer for row in local(folder, limit=2).open()] == ["cat", "dog"], "the first ones are of all classes"


def test_videos_and_many_or_no_other_classes_are_asked_for_in_their_own_words(tmp_path):
    for number in range(60):
        (tmp_path / "many" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "many" / f"{number:02}" / "a.mp4").touch()
    rows = list(local(tmp_path / "many").open())
    assert {row.question for row in rows} == {"<video>What does the video show?"}
    assert rows[7].videos == (tmp_path / "many" / "07" / "a.mp4",)


def test_a_link_out_of_the_folder_costs_its_row(folder, tmp_path):
    (tmp_path / "private.png").write_bytes(png_bytes())
    (folder / "cat" / "0.png").symlink_to(tmp_path / "private.png")
    first, *others = local(folder).open()
    assert isinstance(first, BadRow)
    assert "leads out of" in first.reason
    assert len(others) == 3


def test_another_name_of_a_class_is_another_content(folder):
    before = local(folder).fingerprint()
    (folder / "cat").rename(folder / "bat")
    assert local(folder).fingerprint() != before


def test_the_format_can_be_named_and_needs_its_folders(folder, tmp_path):
    (folder / "labels.jsonl").write_text('{"problem": "?", "answer": "1"}\n')
    assert len(list(local(folder).open())) == 1
    assert len(list(local(folder, format="imagefolder").open())) == 3
    for path in (tmp_path, folder / "labels.jsonl"):
        with pytest.raises(ValueError, match="no folder with images or videos in it"):
            local(path, format="imagefolder").open()


@pytest.mark.parametrize("name", ["rows.json", "rows.csv"])
def test_a_folder_of_images_with_a_table_of_rows_is_no_class(tmp_path, name):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").write_bytes(png_bytes())
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match="`format` may name json, csv or tsv"):
        local(tmp_path).open()
    (tmp_path / "metadata.csv").write_text("problem,file_name,answer\n<image>?,images/a.png,1\n")
    (tmp_path / name).unlink()
    (row,) = local(tmp_path, columns={"image_key": "file_name"}).open()
    assert row.images == (tmp_path / "images" / "a.png",)
