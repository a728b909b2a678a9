"""A driver that gives the answers that a test wants."""

from pathlib import Path

import pytest


def put_driver(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int = 0, *, version: str = "580.95.05"
) -> None:
    """An nvidia-smi that answers this about GPUs, and says that its driver has this version."""
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in *=driver_version) echo {version};; *) cat <<'END'\n{answer}\nEND\nesac\nexit {code}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
