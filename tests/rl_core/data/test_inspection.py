import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.config.data import Columns
from rl_core.data.inspection import inspect_data
from rl_core.data.rows import BadRow, Row
from tests.rl_core.data.samples import png_bytes


def test_usual_names_are_guessed_without_a_doubt(write_jsonl):
    path = write_jsonl([{"question": "<image>How many?", "image": "a.png", "solution": 3, "id": 1}] * 7)
    found = inspect_data(path)
    assert found.source.columns == Columns(prompt_key="question", image_key="image", answer_key="solution")
    assert (found.kind, found.row_count, found.doubts) == ("jsonl", 7, ())
    assert found.columns == ("id", "image", "question", "solution")
    assert len(found.rows) == 5
    assert all(isinstance(row, Row) for row in found.rows)


def test_several_candidates_are_a_doubt(write_jsonl):
    found = inspect_data(write_jsonl([{"problem": "a?", "prompt": "b?", "answer": "1", "label": "2"}]))
    assert found.source.columns.prompt_key == "problem"
    assert found.doubts == (
        "prompt_key: 'problem' was chosen, 'prompt' would fit too",
        "answer_key: 'answer' was chosen, 'label' would fit too",
    )


def test_a_usual_name_with_unusual_values_is_passed_over(write_jsonl):
    found = inspect_data(write_jsonl([{"problem": {"x": 1}, "question": "a?", "label": True, "answer": "1"}]))
    assert (found.source.columns.prompt_key, found.source.columns.answer_key) == ("question", "answer")


def test_images_without_places_are_put_first_and_said_so(write_jsonl):
    found = inspect_data(write_jsonl([{"problem": "How many?", "image": "a.png", "answer": "1"}]))
    assert found.source.columns.images_first
    assert found.rows[0].question == "<image>How many?"
    assert "images_first" in found.doubts[0]


def test_videos_are_found_by_name_and_ending(write_jsonl):
    marked = inspect_data(write_jsonl([{"problem": "<video>How many?", "video": "a.mp4", "answer": "1"}]))
    assert (marked.source.columns.video_key, marked.source.columns.images_first) == ("video", False)
    plain = inspect_data(write_jsonl([{"problem": "How many?", "video": {"path": "a.mp4"}, "answer": "1"}]))
    assert plain.source.columns.images_first
    assert "videos are put before it" in plain.doubts[0]


def test_places_without_an_image_column_are_a_doubt(write_jsonl):
    found = inspect_data(write_jsonl([{"problem": "<image>How many?", "answer": "1"}]))
    assert found.source.columns.image_key is None
    assert "no column looks like images" in found.doubts[0]
    assert isinstance(found.rows[0], BadRow)


def test_embedded_images_of_parquet_are_found(tmp_path):
    rows = [{"problem": "<image>?", "images": [{"bytes": png_bytes(), "path": None}], "answer": "1"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = inspect_data(tmp_path)
    assert (found.kind, found.source.columns, found.doubts) == ("parquet", Columns(), ())


def test_item_folders_need_no_columns(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "data.json").write_text('{"annotat_text": "x", "choices": ["7"], "answer": "A"}')
    found = inspect_data(tmp_path)
    assert (found.kind, found.row_count, found.rows[0].answer) == ("geometry3k", 1, "7")


def test_data_without_a_question_or_an_answer_is_refused_with_its_columns(write_jsonl):
    with pytest.raises(ValueError, match="like the question or the answer; its columns are a, b"):
        inspect_data(write_jsonl([{"a": "x", "b": "y"}]))
    with pytest.raises(ValueError, match="no readable row"):
        inspect_data(write_jsonl(["{"]))
