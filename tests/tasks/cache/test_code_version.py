"""Which code ran is a commit only where the code is under version control."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tasks.cache.software import read_code_version

WHO = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
# Neither a hook that runs these tests nor a person's own settings have a say in the repository that they make.
VARIABLES = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=VARIABLES, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(autouse=True)
def hook(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hook of another repository leaves in the environment."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("another") / ".git"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tracked file of a work tree with one commit."""
    git(tmp_path, "init", "--quiet")
    path = tmp_path / "code.py"
    path.write_text("a = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, *WHO, "commit", "--quiet", "-m", "first")
    return path


def test_a_work_tree_has_a_commit_and_says_when_it_was_changed(file: Path) -> None:
    commit = git(file.parent, "rev-parse", "HEAD")
    assert str(read_code_version(file)) == f"{version('sightline')}+g{commit[:7]}"
    (file.parent / "notes.txt").write_text("git does not know this file")
    assert not read_code_version(file).is_changed
    file.write_text("a = 2\n")
    changed = read_code_version(file)
    assert (changed.commit, changed.is_changed) == (commit, True)
    assert str(changed).endswith(".changed")


def test_a_package_installed_inside_anothers_work_tree_has_none(file: Path) -> None:
    installed = file.parent / ".venv" / "code.py"
    installed.parent.mkdir()
    installed.write_text("a = 1\n")
    assert str(read_code_version(installed)) == version("sightline")


def test_without_git_there_is_the_package_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert read_code_version(file).commit is None
