"""Under which names files are imported, and who finds them."""

import importlib
from pathlib import Path

import pytest

from rl_core.user_code.modules import import_file
from tests.processes import printed_by

pytestmark = pytest.mark.usefixtures("own_imports")


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "VALUE = __name__, __file__\n")
    return path


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("own_reward_of_mine.py", "own_reward_of_mine"),
        ("with-dashes.py", "with-dashes"),
        ("math.py", "math_py"),
        ("numpy.py", "numpy_py"),
        ("rl_core.py", "rl_core_py"),
        ("reward.v2.py", "reward_v2_py"),
        ("__main__.py", "__main___py"),
    ],
)
def test_a_file_has_its_own_name_unless_that_is_taken(tmp_path, file, name):
    path = write(tmp_path / file)
    module = import_file(path)
    assert (name, str(path)) == module.VALUE
    assert import_file(path) is module
    assert importlib.import_module(name) is module


def test_files_of_one_name_are_two_modules(tmp_path):
    paths = [write(tmp_path / folder / "scoring_of_mine.py") for folder in "abc"]
    names = [import_file(path).VALUE[0] for path in paths]
    assert names == ["scoring_of_mine", "scoring_of_mine_py", "scoring_of_mine_py_2"]
    assert [import_file(path).VALUE[1] for path in paths] == [str(path) for path in paths]


def test_a_package_of_its_name_in_the_same_folder_is_another_module(tmp_path):
    path = write(tmp_path / "grading_of_mine.py", "import grading_of_mine as package\n")
    write(tmp_path / "grading_of_mine" / "__init__.py")
    module = import_file(path)
    assert module.VALUE[0] == "grading_of_mine_py"
    assert module.package.VALUE[1] == str(tmp_path / "grading_of_mine" / "__init__.py")


def test_a_file_that_its_neighbour_imports_back_is_one_module(tmp_path):
    path = write(tmp_path / "circle_of_mine.py", "SEEN = []\nimport circle_neighbour\n")
    write(tmp_path / "circle_neighbour.py", "import circle_of_mine\ncircle_of_mine.SEEN.append(1)\n")
    assert import_file(path).SEEN == [1]


def test_processes_started_from_here_find_a_renamed_file(tmp_path):
    import_file(write(tmp_path / "math.py"))
    script = (
        "from rl_core.user_code.modules import find_user_files; find_user_files(); find_user_files()\n"
        "import math, math_py; print(math_py.__file__, math.sqrt(4))"
    )
    assert printed_by(script) == f"{tmp_path / 'math.py'} 2.0\n"
