"""What is known of a source without preparing it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.cache.stages import stage_digests
from tasks.planning.problems import glance_at, known_rows, source_problems, split_glance
from tests.rl_core.data.samples import png_bytes

pytestmark = pytest.mark.usefixtures("at_the_root")


def write_rows(folder: Path, name: str, count: int, **more: object) -> Path:
    """A file of text rows, by the ending of its name."""
    path = folder / name
    rows = [{"problem": f"What is {row}?", "answer": row, "kind": "sum", **more} for row in range(count)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return path


def config_of(train: Path, validation: Path, *overrides: str) -> RunConfig:
    paths = [
        f"data.{key}={{type: local, path: '{path}'}}" for key, path in (("train", train), ("validation", validation))
    ]
    return load_config(Path("tests/e2e/configs/small.yaml"), [*paths, "reward.function=math", *overrides])


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return config_of(write_rows(tmp_path, "sums.jsonl", 9), write_rows(tmp_path, "held.parquet", 5))


def problems_of(config: RunConfig) -> list[tuple[str, str, bool]]:
    return [(problem.where, problem.what, problem.fatal) for problem in source_problems(config, glance_at(config))]


def test_rows_names_and_columns_are_those_of_the_opened_source(config: RunConfig) -> None:
    glances = glance_at(config)
    for key, source in (("data.train", config.data.train), ("data.validation", config.data.validation)):
        reader = source.open()
        assert (glances[key].rows, glances[key].names) == (reader.row_count, {reader.name})
        assert glances[key].columns == {name for row in reader for name in row.extra}
    assert source_problems(config, glances) == []


def test_every_kind_of_source_that_opens_is_counted(config: RunConfig, tmp_path: Path) -> None:
    """A folder of classes, lines of JSON, an array and CSV, whose readers are not those of the files above."""
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "dog").mkdir()
    for name in ("cat/1.png", "dog/1.png", "dog/2.png"):
        (tmp_path / "pets" / name).write_bytes(png_bytes())
    (tmp_path / "array.json").write_text(json.dumps([{"problem": "?", "answer": 1}] * 4))
    (tmp_path / "rows.csv").write_text("problem,answer\n?,1\n?,2\n")
    write_rows(tmp_path, "lines.json", 6)
    for name, rows in (("pets", 3), ("array.json", 4), ("rows.csv", 2), ("lines.json", 6)):
        other = config_of(tmp_path / name, tmp_path / "held.parquet")
        assert glance_at(other)["data.train"].rows == other.data.train.open().row_count == rows
        assert problems_of(other) == []


def test_the_lines_of_a_long_file_are_only_counted(config: RunConfig, tmp_path: Path) -> None:
    glance = glance_at(config_of(write_rows(tmp_path, "long.jsonl", 300), tmp_path / "held.parquet"))["data.train"]
    assert (glance.rows, glance.columns, glance.unused_images) == (300, None, frozenset())
    pictured = write_rows(tmp_path, "pictured.jsonl", 300, left_image="a.png", num_images=1)
    assert glance_at(config_of(pictured, tmp_path / "held.parquet"))["data.train"].unused_images == {"left_image"}


def test_the_rows_of_a_mixture_are_those_of_its_parts(config: RunConfig, tmp_path: Path) -> None:
    part = "{{type: local, path: '{}'}}".format
    parts = f"{{a: {part(tmp_path / 'sums.jsonl')}, b: {part(tmp_path / 'held.parquet')}}}"
    mixed = config_of(
        tmp_path / "sums.jsonl", tmp_path / "held.parquet", f"data.train={{type: mixture, sources: {parts}}}"
    )
    glances = glance_at(mixed)
    whole = split_glance(mixed.data.train, "data.train", glances)
    assert (whole.rows, whole.names, whole.columns) == (14, {"a", "b"}, {"kind"})


def test_a_source_that_cannot_be_read_is_named_with_its_key(config: RunConfig, tmp_path: Path) -> None:
    odd = write_rows(tmp_path, "odd.jsonl", 3)
    odd.write_text('{"question": "?", "answer": 1}\n')
    (found,) = problems_of(config_of(odd, tmp_path / "held.parquet"))
    assert found[0] == "data.train" and "has no column 'problem'" in found[1] and found[2]


@pytest.mark.parametrize(
    ("override", "where", "words", "fatal"),
    [
        ("reward.by_source={sumz: {function: math}}", "reward.by_source.sumz", "did you mean 'sums'?", True),
        ("reward.by_source={elsewhere: {function: math}}", "reward.by_source.elsewhere", "of held, sums", False),
        ("evaluation.categories=[kinb]", "evaluation.categories", "did you mean 'kind'?", True),
        ("evaluation.categories=[answer]", "evaluation.categories", "there is kind", True),
        ("data.source_weights={sums: 1.0, held: 1.0}", "data.source_weights", "the training rows are of sums", True),
    ],
)
def test_an_unknown_name_is_a_problem_of_its_key(
    config: RunConfig, tmp_path: Path, override: str, where: str, words: str, *, fatal: bool
) -> None:
    (found,) = problems_of(config_of(tmp_path / "sums.jsonl", tmp_path / "held.parquet", override))
    assert found[0] == where and words in found[1] and found[2] == fatal


def test_names_that_a_column_gives_are_not_known_beforehand(config: RunConfig, tmp_path: Path) -> None:
    by_column = config_of(
        tmp_path / "sums.jsonl", tmp_path / "held.parquet", "data.train.columns.data_source_key=kind",
        "data.source_weights={sum: 1.0}", "reward.by_source={sum: {function: math}}",
    )  # fmt: skip
    assert problems_of(by_column) == []


def test_rows_are_known_before_they_are_prepared(config: RunConfig, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "mine")
    digests = stage_digests(config)
    train = glance_at(config)["data.train"]
    rows = known_rows(config, run, digests, train)
    assert rows is not None and rows.count == 9 and "left out" in rows.origin
    assert known_rows(config, run, digests) is None
    assert rows.problems(config) == []
    large = config_of(
        tmp_path / "sums.jsonl", tmp_path / "held.parquet", "data.rollout_batch_size=16", "actor.global_batch_size=16"
    )
    (problem,) = rows.problems(large)
    assert problem.where == "data.rollout_batch_size" and problem.fatal, "no row can be added"


def test_a_users_function_is_not_called_to_be_looked_at(config: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text("while True: pass\ndef rows(): ...\n")
    own = config_of(
        tmp_path / "sums.jsonl", tmp_path / "held.parquet", f"data.train={{type: custom, function: '{path}:rows'}}",
        "reward.by_source={row: {function: math}}",
    )  # fmt: skip
    glances = glance_at(own)
    assert [(problem.where, "did you mean 'rows'?" in problem.what) for problem in source_problems(own, glances)] == [
        ("reward.by_source.row", True)
    ]
    assert known_rows(own, RunDirectory(tmp_path / "run"), stage_digests(own), glances["data.train"]) is None


@pytest.mark.parametrize("column", ["picture", "right_img", "sourcePhoto"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_column_with_the_name_of_images_that_no_key_names_is_a_warning(
    tmp_path: Path, name: str, column: str
) -> None:
    train = write_rows(tmp_path, name, 9, **{column: "a.png"})
    config = config_of(train, write_rows(tmp_path, "held.parquet", 5))
    words = f"not used: {column!r}, by the name a column with images"
    assert problems_of(config) == [("data.train.columns.image_key", words, False)]
    named = config_of(train, tmp_path / "held.parquet", f"data.train.columns.image_key={column}")
    assert problems_of(named) == []


@pytest.mark.parametrize(
    ("read", "unused"),
    [("image_1", ["'image_2', 'image_3'"]), ("[image_1, image_2]", ["'image_3'"]), ("[image_1, image_2, image_3]", [])],
)
def test_a_column_of_a_series_that_is_left_out_is_a_warning(tmp_path: Path, read: str, unused: list[str]) -> None:
    pictures = dict.fromkeys(("image_1", "image_2", "image_3", "photo"), "a.png")
    train = write_rows(tmp_path, "rows.jsonl", 9, **pictures)
    config = config_of(train, write_rows(tmp_path, "held.parquet", 5), f"data.train.columns.image_key={read}")
    words = [f"not used: {names}, by the name a column with images" for names in unused]
    assert problems_of(config) == [("data.train.columns.image_key", one, False) for one in words]
