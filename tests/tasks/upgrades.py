"""An upgrade without one: a package that says another version of itself, and a copy of the sources to edit."""

import shutil
from pathlib import Path

import pytest

import rl_core


def pretend(folder: Path, package: str, version: str) -> Path:
    """A folder that says of a package that this version is installed; to be put before all others of the path."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, package: str, version: str) -> None:
    """The same for this process, until the test ends."""
    monkeypatch.syspath_prepend(pretend(folder / "upgraded", package, version))


def copied_sources(folder: Path) -> Path:
    """A copy of the project's packages."""
    sources = folder / "sources"
    for package in ("rl_core", "tasks", "flows", "sightline_tools"):
        shutil.copytree(
            Path(rl_core.__file__).parents[1] / package, sources / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return sources


def edit(module: Path) -> None:
    """Let a module do something else."""
    module.write_text(f"{module.read_text()}\n\nEDITED = True\n")
