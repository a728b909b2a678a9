from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.data.column_guesses import NamedColumns
from rl_core.data.inspection import find_media_folder, inspect_data
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import local, png_bytes


def columns(**options):
    return Columns(**({"video_key": None} | options))


def test_usual_names_are_guessed_without_a_doubt(write_jsonl):
    path = write_jsonl([{"question": "<image>How many?", "image": "a.png", "solution": 3, "id": 1}] * 7)
    found = inspect_data(local(path))
    assert found.source.columns == columns(prompt_key="question", image_key="image", answer_key="solution")
    assert (found.kind, found.row_count, found.doubts) == ("jsonl", 7, ())
    assert found.columns == ("id", "image", "question", "solution")
    assert all(isinstance(row, Row) for row in found.source.open())


def test_several_candidates_are_a_doubt(write_jsonl):
    found = inspect_data(local(write_jsonl([{"problem": "a?", "prompt": "b?", "answer": "1", "label": "2"}])))
    assert found.source.columns.prompt_key == "problem"
    assert found.doubts == (
        "prompt_key: 'problem' was chosen, 'prompt' would fit too",
        "answer_key: 'answer' was chosen, 'label' would fit too",
    )


def test_a_usual_name_with_unusual_values_is_passed_over(write_jsonl):
    found = inspect_data(local(write_jsonl([{"problem": {"x": 1}, "question": "a?", "label": True, "answer": "1"}])))
    assert (found.source.columns.prompt_key, found.source.columns.answer_key) == ("question", "answer")


def test_images_without_places_are_put_first_with_a_remark(write_jsonl):
    found = inspect_data(local(write_jsonl([{"problem": "How many?", "image": "a.png", "answer": "1"}])))
    assert found.source.columns.images_first
    assert next(iter(found.source.open())).question == "<image>How many?"
    assert "images_first" in found.doubts[0]


def test_videos_are_found_by_name_and_ending(write_jsonl):
    marked = inspect_data(local(write_jsonl([{"problem": "<video>How many?", "video": "a.mp4", "answer": "1"}])))
    assert (marked.source.columns.video_key, marked.source.columns.images_first) == ("video", False)
    plain = inspect_data(local(write_jsonl([{"problem": "How many?", "video": {"path": "a.mp4"}, "answer": "1"}])))
    assert plain.source.columns.images_first
    assert "videos are put before it" in plain.doubts[0]


def test_places_without_an_image_column_are_a_doubt(write_jsonl):
    found = inspect_data(local(write_jsonl([{"problem": "<image>How many?", "answer": "1"}])))
    assert found.source.columns.image_key is None
    assert "no column looks like images: name it with --image-key" in found.doubts[0]
    assert isinstance(next(iter(found.source.open())), BadRow)


def test_item_folders_need_no_columns(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "data.json").write_text('{"annotat_text": "x", "choices": ["7"], "answer": "A"}')
    found = inspect_data(local(tmp_path))
    assert (found.kind, found.row_count, next(iter(found.source.open())).answer) == ("geometry3k", 1, "7")
    with pytest.raises(ValueError, match="a geometry3k, which has no columns to be named"):
        inspect_data(local(tmp_path), NamedColumns(answer_key="answer"))


def test_data_without_a_question_or_an_answer_is_refused_with_its_columns(write_jsonl):
    with pytest.raises(ValueError, match="like the question or the answer; its columns are 'a', 'b'"):
        inspect_data(local(write_jsonl([{"a": "x", "b": "y"}])))
    with pytest.raises(ValueError, match=r"none of its rows can be read; rows\.jsonl line 1: the line is not JSON"):
        inspect_data(local(write_jsonl(["{"])))


SHAREGPT = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]
OPENAI = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat."}]


@pytest.mark.parametrize(("name", "turns"), [("conversations", SHAREGPT), ("messages", OPENAI)])
def test_a_conversation_with_its_answer_is_recognised(write_jsonl, name, turns):
    found = inspect_data(local(write_jsonl([{"id": 1, name: turns, "image": "a.png"}])))
    assert found.source.columns == columns(prompt_key=name, answer_key=name, image_key="image")
    assert found.doubts == (f"answer_key: the answer is the last turn of {name!r}, the assistant's",)
    (row,) = found.source.open()
    assert (row.answer, row.images[0].name) == ("A cat.", "a.png")


def test_images_inside_the_turns_need_no_column(write_jsonl, write_image):
    path = write_image("a.png")
    parts = [{"type": "image", "image": str(path)}, {"type": "text", "text": "What?"}]
    found = inspect_data(local(write_jsonl([{"messages": [{"role": "user", "content": parts}], "answer": "A cat."}])))
    assert (found.source.columns.image_key, found.source.columns.images_first, found.doubts) == (None, False, ())
    (row,) = found.source.open()
    assert row.images == (path,)


def test_columns_of_unusual_names_are_named(write_jsonl):
    row = {"q": "What?", "shown": ["a.png"], "gold_label": "A cat."}
    with pytest.raises(ValueError, match="name it to `sightline init`: --prompt-key COLUMN --answer-key COLUMN"):
        inspect_data(local(write_jsonl([row])))
    named = {"prompt_key": "q", "answer_key": "gold_label", "image_key": "shown"}
    found = inspect_data(local(write_jsonl([row])), NamedColumns(**named))
    assert found.source.columns == columns(**named, images_first=True)


def test_a_named_column_that_is_not_there_is_refused_with_the_nearest(write_jsonl):
    named = NamedColumns(prompt_key="problm", image_key="pictures")
    with pytest.raises(ValueError, match=r"'problm' \(--prompt-key\); did you mean 'problem'") as caught:
        inspect_data(local(write_jsonl([{"problem": "?", "answer": "1"}])), named)
    assert "no column 'pictures' (--image-key)" in str(caught.value)


def test_a_column_of_a_usual_name_that_does_not_fit_says_why(write_jsonl):
    turns = [{"role": "critic", "content": "a"}]
    with pytest.raises(ValueError, match=r"of 'messages' the first row says: turn 0 .* none of the roles"):
        inspect_data(local(write_jsonl([{"messages": turns, "answer": "1"}])))


def test_a_hub_data_set_is_looked_at_like_a_file(tmp_path):
    pq.write_table(pa.table({"question": ["?"], "solution": ["1"]}), tmp_path / "train-00000-of-00001.parquet")
    found = inspect_data(HubSource(type="hub", name=f"{tmp_path}@train"))
    assert (found.kind, found.row_count, found.columns) == ("hub", 1, ("question", "solution"))
    assert found.source.columns == columns(prompt_key="question", answer_key="solution", image_key=None)


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
        table = local(path).reader()
        sample = [raw.values for raw in table.raw_rows()]
        return find_media_folder(table, sample, Columns(image_key="image"), folder_of_rows=path.parent)

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
