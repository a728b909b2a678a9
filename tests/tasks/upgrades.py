"""An upgrade without one: a package that says another version of itself, and a source that is edited."""

from pathlib import Path

import pytest


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, package: str, version: str) -> None:
    """Until the test ends, this process finds that this version of a package is installed."""
    metadata = folder / "upgraded" / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder / "upgraded")


def edit(module: Path) -> None:
    """Let a module do something else."""
    module.write_text(f"{module.read_text()}\n\nEDITED = True\n")
