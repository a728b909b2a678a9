"""The identity of code that decides verdicts."""

import ast
import hashlib
from importlib.util import find_spec
from pathlib import Path


def code_digest(modules: tuple[str, ...]) -> str:
    """The first 12 hexadecimal digits of a SHA-256 over what the modules do: neither comments, docstrings nor layout
    count. The modules are read, not imported."""
    return hashlib.sha256("\0".join(_what_it_does(name) for name in modules).encode()).hexdigest()[:12]


def _what_it_does(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} is a module of this project"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or a text that stands alone under a field."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
