"""Rows that a user function yields: in real files, imported as a run imports them."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rl_core.sources.custom import CustomSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import png_bytes

pytestmark = pytest.mark.usefixtures("own_imports")

SUMS = """
def rows(count=3, start=0):
    for number in range(start, start + count):
        yield {"problem": f"What is {number} + 1?", "answer": number + 1, "level": number}
"""

Written = Callable[..., CustomSource]


@pytest.fixture
def written(tmp_path) -> Written:
    """`written(text, **settings)`: a source of the function `rows` of a file with this text, each in its own folder."""
    folders = iter(range(100))

    def write(text: str, *, name: str = "rows", **settings: Any) -> CustomSource:
        path = tmp_path / f"{next(folders)}" / "source_of_mine.py"
        path.parent.mkdir()
        path.write_text(text)
        return CustomSource(type="custom", function=f"{path}:{name}", **settings)

    return write


def problems(source: CustomSource) -> list[tuple[str, str]]:
    return [(problem.where, problem.what) for problem in (*source.problems(), *source.trial_problems())]


def test_a_function_yields_rows_with_its_arguments(written):
    reader = written(SUMS, kwargs={"count": 2, "start": 5}).open()
    first, second = reader
    assert (first, second.index) == (next(iter(reader)), 1), "from the first row each time"
    assert (first.question, first.answer, first.extra) == ("What is 5 + 1?", 6, {"level": 5})
    assert (first.data_source, reader.name, reader.row_count) == ("rows", "rows", None)


def test_a_class_may_stand_in_its_place_and_knows_its_number(written):
    text = """
class Sums:
    made = 0
    def __init__(self, count):
        Sums.made += 1
        self.count = count
    def __len__(self):
        return self.count
    def __iter__(self):
        return ({"problem": f"{self.made}?", "answer": n} for n in range(self.count))
"""
    reader = written(text, name="Sums", kwargs={"count": 4}).open()
    assert reader.row_count == 4
    assert [[row.question for row in reader] for _ in range(2)] == [["1?"] * 4] * 2, "it is made once"
    assert written(text, name="Sums", kwargs={"count": 4}, limit=3).open().row_count == 3


def test_columns_images_and_numbers_of_numpy_are_read_as_in_a_table(written, tmp_path):
    text = """
import numpy as np
from PIL import Image
def rows():
    yield {"q": "<image>?", "picture": Image.new("RGB", (8, 8)), "a": np.int64(3), "from": "drawn"}
    yield {"q": "<image>?", "picture": "neighbour.png", "a": np.float32(0.5), "from": "kept"}
"""
    columns = {"prompt_key": "q", "image_key": "picture", "answer_key": "a", "data_source_key": "from"}
    source = written(text, columns=columns)
    folder = Path(source.function.rpartition(":")[0]).parent
    (folder / "neighbour.png").write_bytes(png_bytes())
    drawn, kept = source.open()
    assert isinstance(drawn.images[0], Image.Image) and kept.images == (folder / "neighbour.png",)
    assert [(row.answer, type(row.answer), row.data_source) for row in (drawn, kept)] == [
        (3, int, "drawn"),
        (0.5, float, "kept"),
    ]
    (elsewhere,) = list(source.model_copy(update={"media_dir": str(tmp_path)}).open())[1:]
    assert elsewhere.images == (tmp_path / "neighbour.png",)


def test_a_row_that_cannot_be_used_is_counted_and_named(written):
    text = """
class Odd(dict):
    def items(self):
        raise KeyError("no items")
def rows():
    yield {"problem": "1?", "answer": 1}
    yield {"problem": "2?"}
    yield ["3?", 3]
    yield {4: 4}
    yield {"problem": "<image>?", "answer": 5, "images": "../../etc/passwd"}
    yield {"problem": "6?", "answer": object()}
    yield Odd(problem="7?", answer=7)
    yield {"problem": "8?", "answer": 8}
"""
    first, *bad, last = written(text).open()
    assert isinstance(first, Row) and isinstance(last, Row) and last.index == 7
    for number, (row, words) in enumerate(
        zip(
            bad,
            (
                "column 'answer': the answer is missing",
                "it is list, not a mapping of columns",
                "it is dict, not a mapping of columns by their names",
                "column 'images': the file ../../etc/passwd leads out of",
                "column 'answer': the answer (object)",
                "KeyError: 'no items' (source_of_mine.py line 4)",
            ),
            strict=True,
        ),
        start=1,
    ):
        assert isinstance(row, BadRow) and f"row {number}" in str(row) and words in str(row)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SUMS + "        number / (number - 1)\n", "row 2: ZeroDivisionError: division by zero (source_of_mine.py"),
        ("def rows():\n    yield {}\n    raise SystemExit(1)\n", "row 1: SystemExit: 1 (source_of_mine.py line 3)"),
        ("def rows():\n    return 3\n", "the call: TypeError: it returned int, which yields no rows"),
        ("import nowhere_at_all\ndef rows(): ...\n", "its import failed: ModuleNotFoundError"),
        ("class rows:\n    __len__ = __iter__ = lambda self: 1 / 0\n", "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_an_exception_in_user_code_names_the_row_and_the_line(written, text, words):
    source = written(text)
    with pytest.raises(ValueError) as raised:
        list(source.open())
    assert words in str(raised.value) and source.function in str(raised.value)
    assert not isinstance(raised.value.__cause__, ValueError)
    if "row" not in words:
        assert [key for key, _ in problems(source)] == ["function"] and words in problems(source)[0][1]


ENDLESS = "import itertools\ndef rows():\n    return ({'problem': f'{n}?', 'answer': n} for n in itertools.count())\n"


def test_a_source_without_end_has_a_limit(written):
    assert len(list(written(ENDLESS, limit=5).open())) == 5
    assert len(list(written(SUMS + "    raise OSError\n", limit=3).open())) == 3, "it is asked for no row more"
    assert written(ENDLESS, limit=5).first_rows(2).limit == written(ENDLESS).first_rows(2).limit == 2
    assert problems(written(ENDLESS)) == [], "it is tried without being read to its end"


@pytest.mark.parametrize(
    ("text", "settings", "found"),
    [
        (SUMS, {}, []),
        (SUMS, {"name": "row"}, [("function", "did you mean `rows`?")]),
        (SUMS, {"kwargs": {"cuont": 3}}, [("kwargs", "`rows` takes no cuont; did you mean `count`?")]),
        ("def rows(a, b=1, *, c, d=2): ...\n", {"kwargs": {"b": 2}}, [("kwargs", "`rows` wants a, c")]),
        ("def rows(): yield from ()\n", {}, [("function", "it yields no row")]),
        ("def rows(): yield {'answer': 1}\n", {}, [("function", "none of its first 1 row(s) can be used; row 0")]),
        (
            "import random\ndef rows(): yield {'problem': f'{random.random()}?', 'answer': 1}\n",
            {},
            [("function", "it yields other rows the second time; draw them from a seed")],
        ),
    ],
)  # fmt: skip
def test_problems_of_a_users_source_are_known_before_a_run_starts(written, text, settings, found):
    named = problems(written(text, **settings))
    assert [key for key, _ in named] == [key for key, _ in found]
    for (_, what), (_, words) in zip(named, found, strict=True):
        assert words in what


def test_a_glance_runs_no_user_code(written, tmp_path):
    source = written(f"open({str(tmp_path / 'ran')!r}, 'w')\n{SUMS}")
    glance = source.glance()
    assert (glance.rows, glance.names, glance.columns) == (None, {"rows"}, None)
    assert not list(source.problems()) and source.fingerprint() and source.known_rows is None
    assert not (tmp_path / "ran").exists()
    list(source.trial_problems())
    assert (tmp_path / "ran").exists(), "a run does try it"


def test_the_fingerprint_is_the_code_and_its_arguments(written, tmp_path):
    before = written(SUMS).fingerprint()
    assert written(SUMS).fingerprint() == before == written(SUMS, media_dir=str(tmp_path)).fingerprint()
    others = [
        written(SUMS + "# edited\n"),
        written(SUMS.replace("rows(", "others("), name="others"),
        written(SUMS, kwargs={"count": 4}),
        written(SUMS, columns={"images_first": True}),
        written(SUMS, limit=2),
    ]
    prints = [before, *(source.fingerprint() for source in others)]
    neighbour = written("from neighbour_of_mine import X\n" + SUMS)
    imported = Path(neighbour.function.rpartition(":")[0]).parent / "neighbour_of_mine.py"
    for text in ("X = 1\n", "X = 2\n"):
        imported.write_text(text)
        prints.append(neighbour.fingerprint())
    assert len(set(prints)) == len(prints)


def test_the_function_itself_says_what_else_the_rows_depend_on(written, tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("1")
    source = written(
        "from pathlib import Path\n"
        "def rows(path): yield {'problem': '?', 'answer': Path(path).read_text()}\n"
        "def fingerprint(path): return Path(path).read_text()\n",
        kwargs={"path": str(data)},
    )
    before = source.fingerprint()
    assert source.fingerprint() == before
    data.write_text("2")
    assert source.fingerprint() != before
    data.unlink()
    with pytest.raises(ValueError, match=r"`fingerprint`: FileNotFoundError: .*source_of_mine.py line 3"):
        source.fingerprint()
    with pytest.raises(ValueError, match="`fingerprint` returned int, not text"):
        written(SUMS + "def fingerprint(): return 3\n").fingerprint()


def test_a_function_of_an_installed_package(tmp_path):
    package = tmp_path / "installed_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sums.py").write_text(SUMS)
    sys.path.append(str(tmp_path))
    source = CustomSource(type="custom", function="installed_of_mine.sums:rows")
    assert [row.answer for row in source.open()] == [1, 2, 3]
    assert not list(source.code_paths()) and source.located(Elsewhere()).function == source.function
    before = source.fingerprint()
    (package / "sums.py").write_text(SUMS + "# edited\n")
    assert source.fingerprint() != before


class Elsewhere:
    def data(self, path: str) -> str:
        return os.path.normpath(f"/begun/{path}")

    def fixed_file(self, path: str) -> Path:
        return Path("/kept") / path


def test_a_file_that_is_read_elsewhere_keeps_its_media_folder():
    located = CustomSource(type="custom", function="own/sums.py:rows").located(Elsewhere())
    assert (located.function, located.media_dir) == ("/kept/own/sums.py:rows", "/begun/own")
