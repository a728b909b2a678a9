"""The versions of the packages that compute are read without importing one."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tasks.cache.packages import versions_of
from tests.tasks.upgrades import install


def test_a_package_comes_with_what_it_calls() -> None:
    found = versions_of(["math_verify.parse", "transformers"])
    assert found == {
        name: version(name)
        for name in ("latex2sympy2_extended", "math-verify", "sympy", "tokenizers", "torchvision", "transformers")
    }


def test_what_carries_what_comes_with_python_and_what_is_not_there_is_left_out() -> None:
    assert versions_of(["pyarrow.parquet", "json", "flash_attn", "a_neighbour_of_nobody"]) == {}


def test_a_package_of_another_name_is_found_by_what_it_installs() -> None:
    """As of those that a user's file imports."""
    assert versions_of(["dateutil.parser", "scipy.stats"]) == {
        "python-dateutil": version("python-dateutil"),
        "scipy": version("scipy"),
    }


def test_an_upgrade_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "torch", "99.1")
    assert versions_of(["torch.nn"]) == {"torch": "99.1"}


def test_no_package_is_imported() -> None:
    code = (
        "import sys; from tasks.cache.packages import COMPUTING, versions_of; versions_of(COMPUTING);"
        "print([name for name in COMPUTING if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
