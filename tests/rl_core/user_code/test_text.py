import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_core.user_code.text import files_of, imported_names, parse, read_source

TEXT = """
from typing import Any as Anything
KIND: str = "batch"
UNSET: int
COMPUTED = "ba" + "tch"
first = second = 3
async def later(sample, *, weight=1.0): ...
def now(sample, /, other): ...
if KIND:
    def inner(sample): ...
OTHER, [left, *right] = "sequential", (later, now, now)
for table in ():
    with open(table) as handle: ...
if (walrus := lambda bound_inside: bound_inside): ...
import dotted.module
class Holder:
    def method(self): ...
"""
LONG = f"LONG = {'+'.join('1' * 800)}\n"


def test_the_top_level_of_a_file_is_read_as_text(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TEXT + LONG)
    source = read_source(path)
    assert source.names == {
        *("Anything", "KIND", "UNSET", "COMPUTED", "first", "second", "later", "now", "inner"),
        *("OTHER", "left", "right", "table", "handle", "walrus", "dotted", "Holder", "LONG"),
    }
    assert source.constants == {"KIND": "batch", "first": 3, "second": 3}
    assert (source.is_async("later"), source.is_async("now"), source.is_async("first")) == (True, False, False)
    assert source.parameters("later") == ["sample", "weight"]
    assert source.parameters("now") == ["sample", "other"]
    assert source.parameters("first") == []
    assert source.may_define("inner")
    assert not source.may_define("sample")


def test_an_expression_too_deep_for_python_is_refused_by_name(tmp_path):
    path = tmp_path / "deep.py"
    path.write_text(f"X = {'-' * 50_000}1\n")
    with pytest.raises(ValueError, match=rf"{path} .*too deeply"):
        read_source(path)


def test_after_a_star_import_any_name_may_be_there(tmp_path):
    path = tmp_path / "stars.py"
    path.write_text("from somewhere import *\n")
    assert read_source(path).may_define("score")


def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nWORD = 'größe'\n".encode("latin-1"))
    assert read_source(path).constants == {"WORD": "größe"}


@pytest.mark.parametrize("first_line", ["", "# coding: no-such-encoding", "# größe"])
def test_a_file_in_an_encoding_that_it_does_not_name_is_refused_with_what_to_do(tmp_path, first_line):
    path = tmp_path / "latin.py"
    path.write_bytes(f"{first_line}\n\nWORD = 'größe'\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{path} .*: save it as UTF-8, or name its encoding"):
        read_source(path)


@pytest.fixture
def often_collecting() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("often_collecting")
def test_no_garbage_is_looked_for_while_a_text_is_parsed():
    code = "\n".join(f"value_{number} = [{number}, ({number} + 1) * 2]" for number in range(300))

    def searches(parsing):
        seen = []
        note = lambda phase, info: seen.append(phase)  # noqa: E731
        gc.callbacks.append(note)
        parsing(code)
        gc.callbacks.remove(note)
        return seen.count("start")

    assert searches(ast.parse) > 10, "the control"
    assert searches(parse) <= 1, "one that was due before or after"
    assert gc.isenabled()


FILES = {
    "reward.py": "import json, numpy.linalg\nimport grading as g\nfrom tools.text import clean\n",
    "grading.py": "def grade():\n    from late import rules\n",
    "late.py": "import reward\n",
    "tools/__init__.py": "",
    "tools/text.py": "from . import words\nfrom .inner.deep import more\n",
    "tools/words.py": "x = 1\n",
    "tools/inner/__init__.py": "",
    "tools/inner/deep.py": "from ..shared import *\n",
    "tools/shared.py": "",
    "stranger.py": "import grading\n",
    "notes/text.py": "",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_reward_is_its_file_and_the_neighbours_that_it_imports(folder):
    found = {path.relative_to(folder).as_posix() for path in files_of(folder / "reward.py")}
    assert found == FILES.keys() - {"stranger.py", "notes/text.py"}


def test_imports_from_elsewhere_are_named(folder):
    found = imported_names(files_of(folder / "reward.py"), folder)
    assert found == {"json", "numpy.linalg"}


def test_a_file_that_is_no_python_stands_for_itself(folder):
    (folder / "reward.py").write_text("import grading\ndef score(:")
    assert files_of(folder / "reward.py") == [folder / "reward.py"]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files_of(tmp_path / "nowhere.py")
