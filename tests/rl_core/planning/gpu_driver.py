"""A driver that answers as told."""

from pathlib import Path

import pytest


def put_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int = 0) -> None:
    """An nvidia-smi that answers this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
