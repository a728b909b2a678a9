import pytest

from rl_core.sources.columns import Columns
from rl_core.sources.mixture import MixtureSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import counting, local


def test_rows_are_numbered_through_and_say_where_they_are(write_jsonl):
    good, bad = {"problem": "?", "answer": 1}, {"problem": "?"}
    source = MixtureSource(
        type="mixture", sources={"drawn": counting(2), "written": local(write_jsonl([good, bad, good]))}
    )
    reader = source.open()
    rows = list(reader)
    assert (reader.name, reader.row_count) == ("drawn + written", 5)
    assert [row.index for row in rows] == list(range(5))
    assert [row.origin for row in rows] == ["scene 1/0", "scene 1/1", *(f"rows.jsonl line {n}" for n in (1, 2, 3))]
    assert isinstance(rows[3], BadRow)
    assert [row.data_source for row in rows if isinstance(row, Row)] == ["drawn", "drawn", "written", "written"]


def test_a_column_names_the_data_source_before_the_mixture_does(write_jsonl):
    path = write_jsonl([{"problem": "?", "answer": 1, "from": "charts"}])
    source = MixtureSource(type="mixture", sources={"a": local(path, columns=Columns(data_source_key="from"))})
    assert [row.data_source for row in source.open()] == ["charts"]


def test_the_problems_of_all_parts_are_named_at_once(tmp_path, write_jsonl):
    source = MixtureSource(
        type="mixture",
        sources={"gone": local(tmp_path / "gone.jsonl"), "other": local(write_jsonl([{"question": "?", "answer": 1}]))},
    )
    with pytest.raises(ValueError, match=r"(?s)gone: .*no such file.*other: .*no column 'problem'"):
        source.open()


def test_equal_mixtures_have_equal_rows_in_whatever_order_they_were_written():
    one, other = {"b": counting(2), "a": counting(3)}, {"a": counting(3), "b": counting(2)}
    rows = [list(MixtureSource(type="mixture", sources=sources).open()) for sources in (one, other)]
    assert [(row.index, row.data_source) for row in rows[0]] == [(row.index, row.data_source) for row in rows[1]]
    assert [row.data_source for row in rows[0]] == ["a", "a", "a", "b", "b"]
