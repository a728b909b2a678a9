import datetime
import decimal
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rl_core.sources.columns import Columns, RowParser, check_columns
from rl_core.sources.media import images_in
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import local

GOOD = {"problem": "<image>How many?", "images": [b"png"], "answer": "3"}


def parse(values, **columns):
    parser = RowParser(columns=Columns(**columns), data_source="test", media_dir=Path("/media"))
    return parser.parse(values, index=4, origin="file line 5")


def test_a_complete_row_is_read_with_its_other_columns():
    row = parse(GOOD | {"level": 2, "blob": b"x", "when": datetime.date(2020, 1, 2), "price": decimal.Decimal("1.5")})
    assert isinstance(row, Row)
    assert (row.question, row.images, row.answer) == ("<image>How many?", (b"png",), "3")
    assert row.extra == {"level": 2, "when": "2020-01-02", "price": "1.5"}  # JSON has no form for the bytes


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.decimal128(10, 2), ["3.50", "12.00"]),
        (pa.decimal128(12, 7), ["3.5", "12"]),
        (pa.decimal256(60, 20), ["3.5", "12"]),
        (pa.date32(), ["2026-11-25", "1999-01-01"]),
        (pa.date64(), ["2026-11-25", "1999-01-01"]),
        (pa.timestamp("s"), ["2026-11-25", "1999-01-01 14:30"]),
        (pa.timestamp("ns"), ["2026-11-25", "1999-01-01 14:30"]),
    ],
)
def test_decimals_and_dates_of_arrow_are_answers_and_options(tmp_path, kind, texts):
    column = pc.cast(pa.array(texts), kind)
    options = pa.array([column.to_pylist()] * 2, pa.list_(kind))
    table = pa.table({"problem": ["?", "?"], "answer": column, "options": options})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert [row.answer for row in local(tmp_path / "rows.parquet").open()] == texts
    chosen = local(tmp_path / "rows.parquet", columns=Columns(options_key="options", answer_as="text")).open()
    assert [(row.answer, [*row.options.values()]) for row in chosen] == [("A", texts), ("B", texts)]


def test_nested_values_are_kept_and_what_json_lacks_becomes_null():
    row = parse(GOOD | {"nested": [1, {"a": (None, 2.5)}], "nan": float("nan"), "mixed": [b"x"]})
    assert row.extra == {"nested": [1, {"a": [None, 2.5]}], "nan": None}


def test_a_conversation_counts_the_image_places_of_all_its_turns():
    turns = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "?"}]
    row = parse(GOOD | {"problem": [*turns, {"role": "user", "content": "And <image>?"}], "images": [b"a", b"b"]})
    assert (row.question, [turn.content for turn in row.history]) == ("And <image>?", ["<image>", "?"])
    bad = parse(GOOD | {"problem": [*turns, {"role": "user", "content": "And?"}], "images": [b"a", b"b"]})
    assert "1 <image> in the question and 2 image(s)" in bad.reason


def test_the_answer_may_be_the_last_turn_of_the_conversation():
    turns = [{"from": "human", "value": "<image>How many?"}, {"from": "gpt", "value": "3"}]
    row = parse({"conversations": turns, "images": "a.png"}, prompt_key="conversations", answer_key="conversations")
    assert (row.question, row.answer, row.extra) == ("<image>How many?", "3", {})
    bad = parse({"conversations": turns[:1]}, prompt_key="conversations", answer_key="conversations")
    assert "not with the assistant's answer" in bad.reason


def test_images_may_stand_in_the_turns():
    parts = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "How many?"}]
    row = parse({"problem": [{"role": "user", "content": parts}], "answer": 3})
    assert (row.question, row.images) == ("<image>How many?", (Path("/media/a.png"),))
    bad = parse({"problem": [{"role": "user", "content": parts}], "answer": 3, "images": ["b.png"]})
    assert (bad.column, bad.reason) == ("images", "there are images in the column and in the turns of the conversation")


def test_videos_have_places_of_their_own():
    row = parse({"problem": "<video>or <image>?", "images": [b"png"], "videos": ["a.mp4"], "answer": "3"})
    assert (row.images, row.videos) == ((b"png",), (Path("/media/a.mp4"),))
    first = parse({"problem": "?", "images": b"png", "videos": [{"bytes": b"mp4"}], "answer": "3"}, images_first=True)
    assert (first.question, first.videos) == ("<image><video>?", (b"mp4",))
    bad = parse({"problem": "<video>?", "answer": "3"})
    assert (bad.column, bad.reason) == ("problem", "1 <video> in the question and 0 video(s) in the row")


def test_a_column_can_name_the_data_source():
    assert parse(GOOD | {"from": "charts"}).data_source == "test"
    row = parse(GOOD | {"from": "charts"}, data_source_key="from")
    assert (row.data_source, row.extra) == ("charts", {})
    bad = parse(GOOD | {"from": None}, data_source_key="from")
    assert (bad.column, bad.reason) == ("from", "the data source is missing or no text")


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"answer": None}, "answer", "the answer is missing"),
        ({"answer": ""}, "answer", "the answer is missing"),
        ({"answer": float("nan")}, "answer", "the answer is missing"),
        ({"answer": float("inf")}, "answer", "the answer is inf, which is no number"),
        ({"answer": [1.0, {"x": float("nan")}]}, "answer", "holds a number that is infinite or none at all"),
        ({"answer": b"3"}, "answer", "the answer (bytes) is no text, number,"),
        ({"answer": [b"3"]}, "answer", "the answer (list) is no text,"),
        ({"problem": None}, "problem", "the question is missing"),
        ({"problem": 7}, "problem", "int, not text"),
        ({"images": [None]}, "problem", "1 <image> in the question and 0 image"),
        ({"images": [7]}, "images", "int"),
        ({"images": {"bytes": None, "path": None}}, "problem", "1 <image> in the question and 0 image"),
        ({"images": ["https://example.org/a.png"]}, "images", "address"),
        ({"problem": "<image><image>Same?"}, "problem", "2 <image> in the question and 1 image"),
        ({"problem": "How many?"}, "problem", "set columns.images_first"),
        ({"images": []}, "problem", "1 <image> in the question and 0 image"),
    ],
)
def test_an_unusable_row_is_named_by_number_column_and_reason(change, column, reason):
    bad = parse(GOOD | change)
    assert isinstance(bad, BadRow)
    assert (bad.index, bad.column, bad.origin) == (4, column, "file line 5")
    assert reason in bad.reason
    assert str(bad) == f"row 4 (file line 5), column {column!r}: {bad.reason}"


HALF = "half \ud83d"


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"problem": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]}, "problem"),
        ({"note": {HALF: 1}}, "note"),
        ({HALF: 1}, r"half \ud83d"),
    ],
)
def test_half_a_character_is_named_in_whatever_column_it_stands(change, column):
    """JSON spells it, and neither a tokenizer nor a file takes it."""
    bad = parse(GOOD | change)
    assert isinstance(bad, BadRow)
    assert bad.column == column
    assert r"'\ud83d', which is half a character" in bad.reason
    str(bad).encode()


def test_a_value_that_is_nested_without_end_costs_its_row():
    deep = []
    for _ in range(5000):
        deep = [deep]
    bad = parse(GOOD | {"note": deep})
    assert isinstance(bad, BadRow)
    assert (bad.column, bad.reason) == ("note", "lists and mappings are nested more than 100 deep")


def test_images_first_puts_places_before_a_question_without_any():
    assert (
        parse(GOOD | {"problem": "Same?", "images": [b"a", b"b"]}, images_first=True).question == "<image><image>Same?"
    )
    assert isinstance(parse(GOOD | {"images": [b"a", b"b"]}, images_first=True), BadRow)  # one place is still marked


@pytest.fixture
def media(tmp_path):
    """A folder of images with links: to itself, out of it, and in a circle."""
    folder = tmp_path / "media"
    folder.mkdir()
    (tmp_path / "private").mkdir()
    (folder / "within").symlink_to(folder)
    (folder / "out").symlink_to(tmp_path / "private")
    (folder / "circle").symlink_to(folder / "circle")
    return folder


@pytest.mark.parametrize("path", ["a.png", "b/../a.png", "within/a.png", "circle", "..a.png", "../media/a.png"])
def test_a_path_that_stays_in_the_media_folder_is_an_image(media, path):
    assert images_in(path, media_dir=media) == (media / path,)
    assert images_in(str(media / path), media_dir=media) == (media / path,)


@pytest.mark.parametrize("path", ["../private/a.png", "b/../../a.png", "out/a.png", "/etc/passwd", "..", "../media2/a"])
def test_a_path_that_leaves_the_media_folder_makes_a_bad_row(media, path):
    row = RowParser(columns=Columns(), data_source="here", media_dir=media).parse(GOOD | {"images": path}, index=3)
    assert isinstance(row, BadRow)
    assert (row.index, row.column) == (3, "images")
    assert "leads out of" in row.reason and "media_dir" in row.reason


def test_files_that_datasets_fetched_may_lie_in_its_caches(media, tmp_path):
    cached = tmp_path / "private" / "a.png"
    assert images_in(str(cached), media_dir=media, caches=[tmp_path / "private"]) == (cached,)
    with pytest.raises(ValueError, match="leads out of"):
        images_in(str(tmp_path / "private" / ".." / "a.png"), media_dir=media, caches=[tmp_path / "private"])


@pytest.mark.parametrize(
    ("names", "keys", "refusal"),
    [
        (["problem", "answer"], {}, None),  # the default image column may be absent
        (["problem", "answer", "image"], {"image_key": None}, None),
        (["problem", "answer", "image"], {}, "did you mean 'image'"),
        (["problem", "answer"], {"image_key": "picture"}, "no column 'picture'"),
        (["problem", "answer"], {"answer_key": "anwser"}, r"'anwser' \(columns.answer_key\); did you mean 'answer'"),
        (["question", "answer"], {"prompt_key": "zzz"}, "its columns are 'answer', 'question'"),
        (["a", "b"], {}, r"'problem'.*\n.*'answer'"),
    ],
)
def test_a_key_that_is_no_column_is_refused_with_the_nearest_or_all_columns(names, keys, refusal):
    with pytest.raises(ValueError, match=refusal) if refusal else nullcontext():
        check_columns(names, Columns(**keys), place="x")


VERL = {"style": "rule", "ground_truth": "5", "more": {"level": 2}}


def test_the_answer_may_be_a_field_inside_a_column():
    row = parse({"problem": "?", "reward_model": VERL}, answer_key="reward_model.ground_truth")
    assert (row.answer, row.extra) == ("5", {"reward_model": VERL})
    assert parse({"problem": "?", "reward_model": VERL}, answer_key="reward_model.more.level").answer == 2
    assert parse({"problem": "?", "answers": ["5", "five"]}, answer_key="answers.0").answer == "5"
    assert parse({"problem": "?", "a.b": 3, "a": {"b": 4}}, answer_key="a.b").answer == 3, "a column of that name"
    check_columns(["problem", "reward_model"], Columns(answer_key="reward_model.ground_truth"), place="x")
    with pytest.raises(ValueError, match=r"no column 'reward\.ground_truth'"):
        check_columns(["problem", "reward_model"], Columns(answer_key="reward.ground_truth"), place="x")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the answer is missing"),
        ("5", "the column 'm' is str, which has no field 'truth'"),
        ([], "the column 'm' has no field 'truth'; its columns are "),
        ({"thruth": 5}, "the column 'm' has no field 'truth'; did you mean 'thruth'?"),
    ],
)
def test_a_field_that_a_row_lacks_costs_it(value, reason):
    bad = parse({"problem": "?", "m": value}, answer_key="m.truth")
    assert (bad.column, bad.reason) == ("m.truth", reason)


def test_a_pattern_reads_the_answer_in_a_text_whose_whole_stays_in_the_row():
    row = parse({"problem": "?", "answer": "3+2=5.\n#### 5"}, answer_pattern=r"####\s*(.+)")
    assert (row.answer, row.extra) == ("5", {"answer": "3+2=5.\n#### 5"})
    assert parse({"problem": "?", "answer": 57}, answer_pattern=r"(\d)$").answer == "7"
    bad = parse({"problem": "?", "answer": "five"}, answer_pattern=r"####\s*(.+)")
    assert bad.column == "answer"
    assert "columns.answer_pattern '####\\\\s*(.+)' finds no answer in 'five'" in bad.reason


@pytest.mark.parametrize(("pattern", "reason"), [("(", "no regular expression"), ("a", "0 groups"), ("(a)(b)", "2 gr")])
def test_a_pattern_has_one_group(pattern, reason):
    with pytest.raises(ValueError, match=reason):
        Columns(answer_pattern=pattern)


def test_options_become_a_mapping_and_the_answer_its_letter():
    values = {"problem": "?", "choices": ["cat", "dog"], "answer": 1, "hint": "barks"}
    row = parse(values, options_key="choices", answer_as="index")
    assert row.answer == "B"
    assert row.template_values == {"choices": ["cat", "dog"], "hint": "barks", "options": {"A": "cat", "B": "dog"}}
    assert parse({"problem": "?", "A": "cat", "B": "dog", "answer": "b"}, options_key=["A", "B"]).answer == "B"
    bad = parse(values | {"answer": 2}, options_key="choices", answer_as="index")
    assert (bad.column, "is not an index from 0 of the options" in bad.reason) == ("answer", True)
    assert parse(values | {"choices": None}, options_key="choices").column == "choices"
    with pytest.raises(ValueError, match=r"no column 'choises' \(columns.options_key\); did you mean 'choices'"):
        check_columns(["problem", "answer", "choices"], Columns(options_key="choises"), place="x")
