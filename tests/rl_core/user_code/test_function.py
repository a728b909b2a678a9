"""Finding a user function by its name in a config, and loading it."""

import sys
from pathlib import Path

import pytest

from rl_core.user_code.function import UserFunction, find_function

pytestmark = pytest.mark.usefixtures("own_imports")

PACKAGE = {
    "rows_of_mine/__init__.py": "",
    "rows_of_mine/inner/__init__.py": "from rows_of_mine.constants import LIMIT\n",
    "rows_of_mine/inner/sums.py": (
        "import json\nfrom ..shared import add\nfrom other_of_mine import x\ndef rows(): ...\n"
    ),
    "rows_of_mine/constants.py": "LIMIT = 3\n",
    "rows_of_mine/shared.py": "def add(): ...\n",
    "rows_of_mine/unused.py": "",
    "other_of_mine.py": "x = 1\ndef single(): ...\n",
}


@pytest.fixture
def installed(tmp_path) -> Path:
    """A folder on the import path, with a package and a module in it."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sys.path.append(str(tmp_path))
    return tmp_path


def written(folder: Path, text: str, name: str = "rows") -> UserFunction:
    (folder / "user_file_of_mine.py").write_text(text)
    return find_function(f"{folder / 'user_file_of_mine.py'}:{name}")


def test_a_file_is_found_without_running_it(tmp_path):
    found = written(tmp_path, "raise SystemExit('it ran')\ndef rows(): ...\n")
    assert (found.name, found.file.parent, found.root, found.module) == ("rows", tmp_path, tmp_path, None)


def test_the_code_of_a_file_is_its_own_and_that_of_its_neighbours(tmp_path):
    (tmp_path / "beside.py").write_text("X = 1\n")
    before = written(tmp_path, "import beside\ndef rows(): ...\n").code
    assert before.keys() == {"user_file_of_mine.py", "beside.py"}
    (tmp_path / "beside.py").write_text("X = 2\n")
    after = written(tmp_path, "import beside\ndef rows(): ...\n").code
    assert {name for name in before if before[name] != after[name]} == {"beside.py"}


def test_an_installed_module_is_found_without_importing_its_packages(installed):
    found = find_function("rows_of_mine.inner.sums:rows")
    assert (found.module, found.root) == ("rows_of_mine.inner.sums", installed)
    assert found.file == installed / "rows_of_mine" / "inner" / "sums.py"
    assert not [name for name in sys.modules if name.startswith("rows_of_mine")]
    assert find_function("other_of_mine:single").load().__module__ == "other_of_mine"


def test_the_code_of_an_installed_module_is_that_of_its_package(installed):
    assert find_function("rows_of_mine.inner.sums:rows").code.keys() == {
        *("rows_of_mine/__init__.py", "rows_of_mine/inner/__init__.py", "rows_of_mine/inner/sums.py"),
        *("rows_of_mine/constants.py", "rows_of_mine/shared.py"),
    }
    assert find_function("other_of_mine:single").code.keys() == {"other_of_mine.py"}
    package = find_function("rows_of_mine.inner:LIMIT")
    assert package.root == installed and package.file.name == "__init__.py"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rows.py", "must read path/to/file.py:function, or package.module:function"),
        ("rows", "must read"),
        ("a/b:rows", "must read"),
        ("rows.py:two words", "must read"),
        ("nowhere_of_mine.py:rows", "there is no file /"),
        ("nowhere_of_mine.inner:rows", "no module nowhere_of_mine.inner is installed; a file of your own is named by"),
        ("json.nowhere:rows", "no module json.nowhere is installed"),
        ("math:sqrt", "the module math is no file of Python"),
        ("json.decoder:JSONDecode", "did you mean `JSONDecoder`?"),
    ],
)
def test_a_missing_function_is_named(name, words):
    with pytest.raises(ValueError, match="^" + repr(name).replace(".", r"\.")) as raised:
        find_function(name)
    assert words in str(raised.value)


def test_an_error_while_a_function_is_loaded_names_the_line(tmp_path):
    texts = {
        "def rows(): ...\n\nraise OSError('no disk')\n": r"OSError: no disk \(user_file_of_mine\.py line 3\)",
        "raise SystemExit(3)\nrows = 1\n": r"SystemExit: 3 \(user_file_of_mine\.py line 1\)",
        "rows = [1]\n": "`rows` is list, which cannot be called",
        "from json import *\n": "defines no `rows` when it is imported",
    }
    for number, (text, words) in enumerate(texts.items()):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(ValueError, match=words):
            written(tmp_path / str(number), text).load()
