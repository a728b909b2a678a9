import codecs
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.sources.local import LocalSource
from rl_core.sources.parquet_rows import json_column
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import local, png_bytes

ROW = {"problem": "2+2?", "answer": 4}


def test_jsonl_rows_are_numbered_and_bad_lines_are_rows_too(write_jsonl):
    path = write_jsonl([ROW, "{broken", "", "[1]", ROW | {"answer": None}])
    first, broken, array, missing = local(path).open()
    assert isinstance(first, Row)
    assert (first.index, first.answer, first.origin, first.data_source) == (0, 4, "rows.jsonl line 1", "rows")
    assert broken.index == 1
    assert "not JSON" in broken.reason
    assert array.origin == "rows.jsonl line 4"
    assert "list, not an object" in array.reason
    assert (missing.index, missing.column, missing.reason) == (3, "answer", "the answer is missing")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"problem": "a\xff", "answer": "1"}', "the line is not UTF-8 (character 15); save the file as UTF-8"),
        (
            b'{"problem": "?", "answer": "1", "x": [{"answer": "1", "answer": "2"}]}',
            "the line cannot be read: an object has the key 'answer' twice",
        ),
        (b'{"problem": ' + b"[" * 100_000, "nested too deeply"),
        (b'["a"]', "list, not an object"),
        (b"[1]", "list, not an object"),
        *((line, "not JSON") for line in (b'{"problem": "?"', b'{"problem', b"{")),
    ],
)
def test_a_bad_first_line_costs_only_its_row(tmp_path, line, reason):
    (tmp_path / "rows.jsonl").write_bytes(line + b'\n{"problem": "?", "answer": 1}\n')
    for path in (tmp_path, tmp_path / "rows.jsonl"):
        bad, good = local(path).open()
        assert (bad.index, bad.origin) == (0, "rows.jsonl line 1")
        assert reason in bad.reason
        assert good.answer == 1


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_and_any_line_end_are_no_matter(tmp_path, line_end):
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"problem": f"größe {n}\u2028", "answer": n}, ensure_ascii=False) for n in range(3)]
    path.write_bytes(b"\xef\xbb\xbf" + line_end.join(lines).encode())
    assert [(row.question, row.answer) for row in local(path).open()] == [(f"größe {n}\u2028", n) for n in range(3)]


def test_a_column_that_stands_twice_is_refused(tmp_path):
    table = pa.table([pa.array(["?"]), pa.array(["1"]), pa.array(["2"])], names=["problem", "answer", "answer"])
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows.parquet: it has several columns 'answer'"):
        local(tmp_path).open()


def test_a_value_that_python_has_no_form_for_costs_its_row(tmp_path):
    columns = {"problem": ["0?", "1?", "2?"], "answer": ["0", "1", "2"]}
    table = pa.table(columns | {"when": pa.array([0, 2**62, 1], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet")
    first, bad, last = local(tmp_path).open()
    assert (first.answer, last.answer) == ("0", "2")
    assert (bad.column, bad.origin) == ("when", "a.parquet row 1")
    assert "a value of type timestamp[" in bad.reason


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it holds no row"),
        (b" \n\n", "it holds no row"),
        (b'[{"problem": "?", "answer": 1}]', "one JSON array"),
        (b'\xef\xbb\xbf[\n  {"problem": "?"}\n]\n', "one JSON array"),
        (b'{\n  "problem": "?",\n  "answer": 1\n}\n', "objects go over several lines"),
        (gzip.compress(b'{"problem": "?"}', mtime=0), "compressed by gzip: unpack it first"),
        (codecs.BOM_UTF16_LE + '{"problem": "?"}'.encode("utf-16-le"), "text in UTF-16 or UTF-32: save it as UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
        (b"<!DOCTYPE html>\n<html>404</html>", "a web page"),
        (bytes(1000), "nothing but zero bytes"),
        (b"problem,answer\n?,1\n", r"none of its rows can be read; rows.jsonl line 1: the line is not JSON"),
    ],
)
def test_a_file_that_is_no_jsonl_is_named_as_what_it_is(tmp_path, content, what):
    (tmp_path / "rows.jsonl").write_bytes(content)
    for path in (tmp_path, tmp_path / "rows.jsonl"):
        with pytest.raises(ValueError, match=what) as caught:
            local(path).open()
        assert str(tmp_path) in str(caught.value)


def test_parquet_rows_hold_images_as_datasets_stores_them(tmp_path):
    rows = [
        {"problem": f"<image>{n}", "answer": n, "images": [{"bytes": png_bytes(), "path": None}]} for n in range(130)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "set.parquet")
    reader = local(tmp_path / "set.parquet").open()
    assert reader.row_count == 130
    assert [row.index for row in reader] == list(range(130))
    last = list(reader)[-1]
    assert last.images == (png_bytes(),)
    assert last.origin == "set.parquet row 129"


def test_a_column_of_json_is_unpacked_and_what_is_none_costs_its_row(tmp_path):
    texts = ['{"a": [1, null]}', "null", None, "{"]
    schema = pa.schema(
        [("problem", pa.string()), ("answer", pa.string()), json_column("note"), pa.field("text", pa.string())]
    )
    rows = [{"problem": "?", "answer": "1", "note": text, "text": text} for text in texts]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "set.parquet")
    *good, bad = local(tmp_path / "set.parquet").open()
    assert [row.extra for row in good] == [
        {"note": {"a": [1, None]}, "text": texts[0]},
        {"note": None, "text": "null"},
        {"text": None},
    ]
    assert (bad.column, bad.origin) == ("note", "set.parquet row 3")
    assert "not JSON" in bad.reason


def test_a_folder_of_shards_is_read_in_order_of_names(tmp_path):
    for shard in (1, 0):
        rows = [{"problem": f"{shard}.{n}", "answer": "x"} for n in range(2)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"train-0000{shard}-of-00002.parquet")
    assert [row.question for row in local(tmp_path).open()] == ["0.0", "0.1", "1.0", "1.1"]


def test_a_star_in_the_name_reads_the_shards_of_one_split(tmp_path, write_jsonl):
    for name in ("train-1-of-2", "train-0-of-2", "test-0-of-1", "train[0]-0-of-2"):
        write_jsonl([{"problem": name, "answer": "x"}], f"{name}.jsonl")
    source = local(tmp_path / "train-*-of-2.jsonl")
    assert [(row.question, row.data_source) for row in source.open()] == [
        ("train-0-of-2", "train"),
        ("train-1-of-2", "train"),
    ]
    (row,) = local(tmp_path / "train[0]-0-of-2.jsonl").open()
    assert row.question == "train[0]-0-of-2", "one shard that is named by itself"
    (row,) = local(write_jsonl([ROW], "a*b.jsonl")).open()
    assert row.data_source == "a*b", "a file of just this name"


def test_a_limit_takes_the_first_rows(write_jsonl):
    source = local(write_jsonl([ROW | {"problem": str(n)} for n in range(5)]), limit=3)
    assert [row.question for row in source.open()] == ["0", "1", "2"]
    assert source.open().row_count == 3


def test_relative_image_paths_start_at_the_file_or_at_media_dir(write_jsonl, tmp_path):
    path = write_jsonl([{"problem": "<image>", "answer": "1", "images": ["a.png"]}])
    (here,) = local(path).open()
    (elsewhere,) = local(path, media_dir="/media").open()
    assert here.images == (tmp_path / "a.png",)
    assert str(elsewhere.images[0]) == "/media/a.png"


def test_a_column_of_later_rows_counts_as_present(write_jsonl):
    first, second = local(write_jsonl([{"problem": "a"}, ROW])).open()
    assert isinstance(first, BadRow)
    assert isinstance(second, Row)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nothing.jsonl", "no such file or folder"),
        (lambda folder: folder, "no .parquet or .jsonl file"),
        (lambda folder: _touch(folder / "rows.xlsx"), "must end in one of .parquet, .jsonl, .json, .csv, .tsv"),
        (lambda folder: _touch(folder / "a.jsonl", folder / "b.parquet").parent, "holds parquet and jsonl"),
        (lambda folder: _touch(folder / "rows.parquet"), "no readable Parquet file"),
        (lambda folder: folder / "train-*.parquet", "no such file or folder"),
        (lambda folder: _touch(folder / "train-0.tsv").parent / "train-*", "must end in one of .parquet"),
        (
            lambda folder: _touch(folder / "a-0-of-1.jsonl", folder / "b-0-of-1.jsonl").parent / "*.jsonl",
            r"the splits a, b; .*/a-\*\.jsonl",
        ),
        (
            lambda folder: _touch(folder / "train-0-of-1.parquet", folder / "test-0-of-1.parquet").parent,
            "the splits test, train",
        ),
    ],
)
def test_a_path_that_is_no_source_is_refused_by_name(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        local(make(tmp_path)).open()


def _touch(*paths):
    for path in paths:
        path.write_bytes(b"")
    return paths[0]


def test_a_forced_format_needs_its_files(tmp_path):
    for kind, message in (("jsonl", "no .jsonl file"), ("geometry3k", "no item folder")):
        with pytest.raises(ValueError, match=message):
            LocalSource(type="local", path=str(tmp_path), format=kind).open()


def test_a_parquet_file_whose_names_are_no_text_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"problem": ["?"], "answer": ["1"]}), path, store_schema=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"no readable Parquet file: Parquet magic bytes not found in footer"):
        local(path).open()
    path.write_bytes(whole.replace(b"answer", b"\x80nswer"))
    with pytest.raises(ValueError, match=r"data source .*rows\.parquet: no readable Parquet file: 'utf-8' codec"):
        local(path).open()
