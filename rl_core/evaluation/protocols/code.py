"""Digest of the code that decides whether a response is right."""

import ast
import hashlib
from importlib.util import find_spec
from pathlib import Path

from rl_core.source_code import what_it_does


def code_digest(modules: tuple[str, ...]) -> str:
    """The first 12 hexadecimal digits of a SHA-256 over what the modules do: neither comments, docstrings nor layout
    count. The modules are read, not imported."""
    return hashlib.sha256("\0".join(_read(name) for name in modules).encode()).hexdigest()[:12]


def _read(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} is a module of this project"
    return what_it_does(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
