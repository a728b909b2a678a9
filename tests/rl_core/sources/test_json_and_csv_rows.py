"""JSON arrays and CSV are read as EasyR1 reads them, and a bad row costs itself."""

import csv
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import local

ROWS: list[dict[str, Any]] = [
    {"problem": '1+1?\u2028 "quoted", twice', "answer": 2, "level": 0.5, "hard": True, "note": "007a"},
    {"problem": "a\nb", "answer": -3, "level": 1e-3, "hard": False, "note": None},
]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_json(path: Path, rows: Any, **layout: Any) -> Path:
    path.write_text(json.dumps(rows, **layout), encoding="utf-8")
    return path


def values(path: Path) -> list[Any]:
    return [raw.values for raw in local(path).reader().raw_rows()]


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"ensure_ascii": False}])
def test_an_array_gives_its_objects(tmp_path, layout):
    path = write_json(tmp_path / "rows.json", ROWS, **layout)
    assert values(path) == ROWS
    first, second = local(path).open()
    assert isinstance(first, Row) and isinstance(second, Row)
    assert (first.answer, first.origin, second.origin) == (2, "rows.json row 0", "rows.json row 1")


def test_tabs_separate_the_values_of_a_tsv(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text('problem\tanswer\n"1, 2\tand 3?"\t6\n')
    assert values(path) == [{"problem": "1, 2\tand 3?", "answer": 6}]


def test_a_csv_gives_values_of_the_kind_of_their_column(tmp_path):
    assert values(write_csv(tmp_path / "rows.csv", ROWS)) == ROWS


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (["1", "", "3"], [1, None, 3]),
        (["1", "x"], ["1", "x"]),
        (["1", "2.5"], [1.0, 2.5]),
        (["TRUE", "false"], [True, False]),
        (["1", "true"], ["1", "true"]),
        (["1e400", "2"], ["1e400", "2"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["00012", "7"], ["00012", "7"]),
        (["0", "0.5"], [0.0, 0.5]),
        (["nan", "1_000"], ["nan", "1_000"]),
        (["2020-01-01", "None"], ["2020-01-01", "None"]),
        (["3.50", "", "4"], ["3.50", None, "4"]),
        (["4.0", "2.5"], [4.0, 2.5]),
    ],
)
def test_no_value_loses_anything_to_its_columns_kind(tmp_path, column, read):
    path = write_csv(tmp_path / "rows.csv", [{"problem": "?", "answer": text} for text in column])
    assert [row["answer"] for row in values(path)] == read
    assert list(map(type, (row["answer"] for row in values(path)))) == list(map(type, read))


def test_rows_are_those_of_the_library_that_easyr1_reads_with(tmp_path, monkeypatch):
    import datasets

    rows = [{name: value for name, value in row.items() if name != "note"} for row in ROWS]
    for kind, path in (
        ("csv", write_csv(tmp_path / "rows.csv", rows)),
        ("json", write_json(tmp_path / "rows.json", rows)),
    ):
        theirs = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
        assert values(path) == theirs.to_list()


@pytest.mark.parametrize("indent", [None, 1])
def test_objects_by_their_ids_are_rows(tmp_path, indent):
    path = tmp_path / "problems.json"
    path.write_text(json.dumps({f"{place}": row for place, row in enumerate(ROWS)}, indent=indent))
    assert values(path) == ROWS
    assert [row.origin for row in local(path).open()][:2] == ["problems.json '0'", "problems.json '1'"]


def test_a_line_that_begins_with_an_object_is_a_row(tmp_path):
    rows = [{"reward_model": {"ground_truth": "1"}, "problem": "?"}, {"reward_model": {"ground_truth": "2"}}]
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert values(path) == rows


def test_bad_rows_of_an_array_cost_themselves(tmp_path):
    path = tmp_path / "rows.json"
    good = b'{"problem": "?", "answer": 1}'
    path.write_bytes(b"[" + b",".join([good, b"7", b'{"answer": 1, "answer": 2}', b'{"problem": "\xff"}', good]) + b"]")
    rows = list(local(path).open())
    assert [isinstance(row, Row) for row in rows] == [True, False, False, False, True]
    reasons = [row.reason for row in rows if isinstance(row, BadRow)]
    assert reasons[0] == "the row holds int, not an object"
    assert "the key 'answer' twice" in reasons[1]
    assert "not UTF-8" in reasons[2]


def test_bad_lines_of_a_csv_cost_themselves(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfproblem,answer\r\na,1\r\n\r\nb,2,3\r\n\xff,4\r\nc,5\r\n")
    rows = list(local(path).open())
    assert [row.answer for row in rows if isinstance(row, Row)] == [1, 5]
    assert [(row.origin, row.reason) for row in rows if isinstance(row, BadRow)] == [
        ("rows.csv line 4", "the line has 3 values, and there are 2 columns"),
        ("rows.csv line 5", "the line is not UTF-8; save the file as UTF-8"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.json", b"[{}, {", "the array is damaged"),
        ("rows.json", b'[{"a": 1} {"a": 2}]', "no comma after character 9"),
        ("rows.json", b"[", "the array is damaged"),
        ("rows.json", b"[]", "it holds no row"),
        ("rows.json", b'{\n "problem": "?"\n}', "objects go over several lines"),
        ("rows.json", b"PAR1", "Parquet: let its name end in .parquet"),
        ("rows.csv", b"", "it holds no row"),
        ("rows.csv", b"problem,answer\n", "it holds no row"),
        ("rows.csv", b"problem,problem\na,b\n", "several columns 'problem'"),
        ("rows.csv", b'problem,answer\n"a,1\n', "line 2 is no CSV"),
        ("rows.csv", b"\x1f\x8bxxxx", "no CSV but compressed by gzip"),
        ("rows.csv", b"problem;answer\na;1\n", "no column 'problem'"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        list(local(path).open())


def test_every_format_of_the_config_is_a_kind_of_file_or_of_folder():
    assert get_args(LocalSource.model_fields["format"].annotation) == ("auto", *FILE_KINDS, "geometry3k", "imagefolder")
