"""Which files decide what a user's reward function says."""

from pathlib import Path

import pytest

from rl_core.user_code.files import files_of, imported_names

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
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_reward_is_its_file_and_the_neighbours_that_it_imports(folder: Path) -> None:
    found = {path.relative_to(folder).as_posix() for path in files_of(folder / "reward.py")}
    assert found == FILES.keys() - {"stranger.py", "notes/text.py"}


def test_what_is_imported_from_elsewhere_is_named(folder: Path) -> None:
    found = imported_names(files_of(folder / "reward.py"), folder)
    assert found == {"json", "numpy.linalg"}


def test_a_file_that_is_no_python_stands_for_itself(folder: Path) -> None:
    (folder / "reward.py").write_text("import grading\ndef score(:")
    assert files_of(folder / "reward.py") == [folder / "reward.py"]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files_of(tmp_path / "nowhere.py")
