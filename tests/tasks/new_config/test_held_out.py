"""Rows set apart share nothing with those that stay."""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.sources.columns import Columns
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import Row
from tasks.new_config.held_out import Shared, Split, find_split, set_rows_apart, take_pair
from tests.rl_core.data.samples import local, png_bytes


@cache
def picture(number: int) -> bytes:
    return png_bytes((1, 1), (number % 256, number // 256, 0))


def parquet(folder: Path, rows: list[dict]) -> LocalSource:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return local(folder / "rows.parquet")


def table(folder: Path, images: list[list[int]]) -> LocalSource:
    """A Parquet file with one row an entry, whose images are known by number."""
    rows = [
        {"problem": "<image>" * len(row) + f"row {number}", "images": [picture(one) for one in row], "answer": "1"}
        for number, row in enumerate(images)
    ]
    return parquet(folder, rows)


def contents(source: LocalSource) -> list[Row]:
    rows = list(source.open())
    assert all(isinstance(row, Row) for row in rows)
    return rows


def seen(rows: list[Row]) -> set:
    return {image for row in rows for image in row.images} | {row.question for row in rows}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=2, max_size=30))
def test_no_row_is_lost_and_nothing_is_seen_on_both_sides(tmp_path_factory, images: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("split")
    source = table(folder / "in", images)
    try:
        split = set_rows_apart(source, folder / "out")
    except ValueError as error:
        assert "can be held out" in str(error)  # noqa: PT017 - all rows hang together, which the law allows
        return
    train, held_out = contents(split.train), contents(split.validation)
    assert train and held_out
    assert sorted(row.question for row in train + held_out) == sorted(row.question for row in contents(source))
    assert not seen(train) & seen(held_out)


def test_a_tenth_is_held_out_and_the_choice_is_repeatable(tmp_path: Path) -> None:
    source = table(tmp_path / "in", [[number] for number in range(100)])
    first, second = (set_rows_apart(source, tmp_path / name) for name in ("a", "b"))
    assert len(contents(first.validation)) == 10
    assert seen(contents(first.validation)) == seen(contents(second.validation))


def asked_again(folder: Path, answers: list[str], *, seed: int = 0) -> LocalSource:
    """A file in which every row asks the same of an image of its own, in an order drawn by `seed`."""
    rows = [
        {"problem": "<image>What shape?", "images": [picture(number)], "answer": answer}
        for number, answer in enumerate(answers)
    ]
    random.Random(seed).shuffle(rows)
    return parquet(folder, rows)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_each_answer_has_its_share_of_the_held_out_rows_in_any_order(tmp_path_factory, counts: list[int]) -> None:
    answers = [f"class {number}" for number, count in enumerate(counts) for _ in range(count)]
    if len(answers) < 2:
        return
    folder = tmp_path_factory.mktemp("split")
    first, second = (
        set_rows_apart(asked_again(folder / str(seed), answers, seed=seed), folder / str(seed)) for seed in (1, 2)
    )
    assert seen(contents(first.validation)) == seen(contents(second.validation))
    held_out = Counter(row.answer for row in contents(first.validation))
    assert first.answers == {"train": Counter(answers) - held_out, "validation": held_out}
    wanted = max(1, len(answers) // 10)
    assert held_out.total() == wanted
    for number, count in enumerate(counts):
        assert abs(held_out[f"class {number}"] - wanted * count / len(answers)) < 1


def test_one_image_of_most_rows_is_not_held_out(tmp_path: Path) -> None:
    """Each row of a large cluster would be missing in training."""
    source = table(tmp_path / "in", [[0]] * 80 + [[number] for number in range(1, 21)])
    split = set_rows_apart(source, tmp_path / "out")
    assert len(contents(split.validation)) == 10


def pair(folder: Path, train: list[list[int]], validation: list[list[int]], *, shared: Shared | None = None) -> Split:
    return take_pair(
        table(folder / "a", train),
        table(folder / "b", validation),
        origin="given",
        shared=shared,
        folder=folder / "out",
    )


def shown(source: LocalSource) -> list[tuple]:
    return [row.images for row in contents(source)]


def images(*rows: list[int]) -> list[tuple]:
    return [tuple(map(picture, row)) for row in rows]


ROWS, HELD_OUT = [[1], [2, 3], [4], [5], [2]], [[3], [4], [9]]


@pytest.mark.parametrize(
    ("shared", "train", "held_out"),
    [
        (None, [[1], [5], [2]], HELD_OUT),  # as drop
        ("drop", [[1], [5], [2]], HELD_OUT),
        ("held-out", [[1], [5]], [*HELD_OUT, [2, 3], [2], [4]]),  # the image 2 of a moved row too
        ("train", [*ROWS, [3], [4]], [[9]]),
    ],
)
def test_rows_of_a_pair_that_share_images_are_left_out_or_moved_and_numbers_say_what_each_choice_does(
    tmp_path: Path, shared: Shared | None, train: list[list[int]], held_out: list[list[int]]
) -> None:
    split = pair(tmp_path, ROWS, HELD_OUT, shared=shared)
    assert sorted(shown(split.train)) == sorted(images(*train))
    assert sorted(shown(split.validation)) == sorted(images(*held_out))
    assert split.answers == {"train": {"1": len(train)}, "validation": {"1": len(held_out)}}
    assert "2 of 5 row(s)" in split.origin and "(the first is row 1)" in split.origin
    effects = {
        "drop": "--shared drop leaves training rows out: 3 row(s) to train on, 3 held out",
        "held-out": "--shared held-out holds training rows out too: 2 row(s) to train on, 6 held out",
        "train": "--shared train trains on held-out rows: 7 row(s) to train on, 1 held out",
    }
    taken = effects.pop(shared or "drop")
    assert f"; {taken} (instead, {'; '.join(effects.values())})" in split.origin


def test_a_pair_of_which_most_training_rows_would_be_left_out_is_refused_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"3 of 5 row\(s\) .*: --shared drop .*: 2 row\(s\) to train on, 3") as caught:
        pair(tmp_path, ROWS, [*HELD_OUT[:2], [5]])
    assert str(tmp_path / "b") in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("shared", "side"), [("drop", "0 row(s) to train on"), ("train", "0 held out")])
def test_no_side_is_left_without_a_row(tmp_path: Path, shared: Shared, side: str) -> None:
    with pytest.raises(ValueError, match="--validation names other held-out rows") as caught:
        pair(tmp_path, [[1]], [[1]], shared=shared)
    assert side in str(caught.value)


LINKS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=2), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(LINKS, LINKS, st.sampled_from(["drop", "held-out", "train"]))
def test_no_image_is_on_both_sides_and_a_moved_row_is_not_lost(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], held_out: list[list[int]], shared: Shared
) -> None:
    try:
        split = pair(tmp_path_factory.mktemp("pair"), rows, held_out, shared=shared)
    except ValueError as error:
        assert "0 row(s) to train on" in str(error) or "0 held out" in str(error)  # noqa: PT017 - all hang together
        return
    train, validation = shown(split.train), shown(split.validation)
    assert train and validation
    assert not {image for row in train for image in row} & {image for row in validation for image in row}
    if shared == "drop":
        assert validation == images(*held_out)
    else:
        assert sorted(train + validation) == sorted(images(*rows, *held_out))


def test_rows_that_are_read_by_other_columns_are_not_moved(tmp_path: Path) -> None:
    train = table(tmp_path / "a", [[1], [2], [3]])
    options = [{"problem": "<image>?", "images": [picture(3)], "choices": ["yes", "no"], "answer": "A"}] * 2
    held_out = parquet(tmp_path / "b", options)
    held_out = held_out.model_copy(update={"columns": Columns(options_key="choices")})
    with pytest.raises(ValueError, match="answers are read by other columns: --shared drop leaves them out"):
        take_pair(train, held_out, origin="given", shared="held-out", folder=tmp_path / "out")


@pytest.mark.parametrize("shared", [None, "drop", "held-out", "train"])
def test_a_pair_that_shares_nothing_stays_as_it_is(tmp_path: Path, shared: Shared | None) -> None:
    split = pair(tmp_path, [[1], [2]], [[3]], shared=shared)
    assert split.train.path == str(tmp_path / "a" / "rows.parquet")
    assert split.validation.path == str(tmp_path / "b" / "rows.parquet")
    assert split.origin == "given"


def test_text_rows_share_the_whole_conversation(tmp_path: Path) -> None:
    """`row 0` alone is asked on both sides, and a run refuses the same prompt on both."""
    assert "1 of 2 row(s)" in pair(tmp_path, [[], []], [[]]).origin


def test_rows_that_all_show_one_image_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"none of the 2 usable row\(s\) can be held out, because all of them share an image"
    ):
        set_rows_apart(table(tmp_path / "in", [[7], [7]]), tmp_path / "out")


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        (["train.parquet", "test.parquet"], "", ("train.parquet", "test.parquet")),
        (["train.parquet", "test.parquet", "val.parquet"], "", ("train.parquet", "val.parquet")),
        (["train-00000.parquet", "validation-00000.parquet"], "", ("train-00000.parquet", "validation-00000.parquet")),
        (["questions.jsonl", "test.jsonl"], "questions.jsonl", ("questions.jsonl", "test.jsonl")),
        (["questions.jsonl", "test.py", "val.txt", "dev/notes.txt"], "questions.jsonl", None),
        (["train.py", "train_images/1.png", "test_images/1.png", "rows.jsonl", "test.jsonl"], "", None),
        (
            ["train.jsonl", "test.jsonl", "train_images/1.png", "test_images/1.png"],
            "",
            ("train.jsonl", "test.jsonl"),
        ),
        (["train/1/data.json", "test/a.parquet", "train.md"], "", ("train", "test")),
        (
            [*(f"train-0000{n}-of-00003.parquet" for n in range(3)), "test-00000-of-00001.parquet"],
            "",
            ("train-*-of-00003.parquet", "test-00000-of-00001.parquet"),
        ),
        (
            ["rows.jsonl", "val-0-of-2.jsonl", "val-1-of-2.jsonl"],
            "rows.jsonl",
            ("rows.jsonl", "val-*-of-2.jsonl"),
        ),
        (["train.jsonl", "train_2.jsonl", "test.jsonl"], "train.jsonl", ("train.jsonl", "test.jsonl")),
        (["test.jsonl"], "test.jsonl", None),
        (["test-0-of-2.jsonl", "test-1-of-2.jsonl"], "test-1-of-2.jsonl", None),
        (["test-0-of-2.jsonl", "test-1-of-2.jsonl"], "test-*-of-2.jsonl", None),
        (["rows.parquet"], "", None),
    ],
)
def test_held_out_data_is_found_by_its_name(tmp_path: Path, names: list[str], asked: str, expected) -> None:
    lay_down(tmp_path, names)
    found = find_split(tmp_path / asked if asked else tmp_path)
    assert found == (expected and tuple(tmp_path / name for name in expected))


def lay_down(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("names", "asked", "claims"),
    [
        (["train.jsonl", "train_hard.jsonl", "test.jsonl"], "", ("train.jsonl", "train_hard.jsonl")),
        (["train.jsonl", "train/a.parquet", "test.jsonl"], "", ("train", "train.jsonl")),
        (["train-0-of-1.jsonl", "train-0-of-2.jsonl", "train-1-of-2.jsonl", "test.jsonl"], "", ("train-*-of-2.jsonl",)),
        (["rows.jsonl", "test_a.jsonl", "test_b.jsonl"], "rows.jsonl", ("test_a.jsonl", "test_b.jsonl")),
    ],
)
def test_two_that_claim_one_name_are_both_named(
    tmp_path: Path, names: list[str], asked: str, claims: tuple[str, ...]
) -> None:
    lay_down(tmp_path, names)
    with pytest.raises(ValueError, match="sightline init DATA --validation HELD_OUT") as caught:
        find_split(tmp_path / asked if asked else tmp_path)
    for name in claims:
        assert f"{tmp_path / name}" in str(caught.value)


EXTRAS = [
    {"level": 3, "category": "charts"},
    {"level": 2.5, "category": None},
    {"level": "hard"},
    {"level": True, "empty": {}, "none": [], "deep": {"a": [1, {"b": None}], "c": "π"}},
    {"deep": [], "null": "null", "": 0},
    {},
]


def test_every_other_column_is_read_back_as_it_was(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    """Rewards, a curriculum and the categories of an evaluation look for them."""
    rows = [{"problem": f"{n}?", "answer": str(n), **EXTRAS[n % len(EXTRAS)]} for n in range(18)]
    source = local(write_jsonl(rows))
    split = set_rows_apart(source, tmp_path / "out")
    read = {row.question: row.extra for row in contents(split.train) + contents(split.validation)}
    assert read == {row.question: row.extra for row in contents(source)}
    assert {repr(extra["level"]) for extra in read.values() if "level" in extra} == {"3", "2.5", "'hard'", "True"}


def test_other_columns_may_have_the_usual_names(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    rows = [
        {"question": f"{n}?", "solution": str(n), "answer": n, "problem": [n], "images": None, "images_": "?"}
        for n in range(4)
    ]
    columns = Columns(prompt_key="question", answer_key="solution", image_key=None)
    source = local(write_jsonl(rows), columns=columns)
    split = set_rows_apart(source, tmp_path / "out")
    read = {(row.question, row.answer): row.extra for row in contents(split.train) + contents(split.validation)}
    assert read == {(row.question, row.answer): row.extra for row in contents(source)}
    assert read["2?", "2"] == {"answer": 2, "problem": [2], "images": None, "images_": "?"}


@pytest.mark.parametrize("kind", ["images", "videos"])
def test_rows_that_name_files_and_conversations_can_be_read_back(
    write_jsonl: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    place = {"images": "<image>", "videos": "<video>"}[kind]
    media = tmp_path / "data" / "media"
    media.mkdir(parents=True)
    rows = []
    for number in range(12):
        (media / f"{number}.bin").write_bytes(picture(number))
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{place}{number}?"}]
        rows.append({"problem": turns, kind: [f"media/{number}.bin"], "answer": "1"})
    split = set_rows_apart(local(write_jsonl(rows, "data/rows.jsonl")), tmp_path / "out")
    read = contents(split.train) + contents(split.validation)
    files = {path.read_bytes() for row in read for path in (*row.images, *row.videos)}
    assert files == set(map(picture, range(12)))
    assert {turn.content for row in read for turn in row.history} == {"Be brief."}
