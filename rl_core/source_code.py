"""The code of a Python module: its tree, and its text without comments, docstrings and layout."""

import ast
import gc


def parse(code: str | bytes, *, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse` without a search for garbage in the middle.

    A search runs code of any object, and with it perhaps another thread. If that parses too, Python 3.11 raises
    "SystemError: AST constructor recursion depth mismatch" here (python/cpython#106905).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code, filename=filename)
    finally:
        if collects:
            gc.enable()


def what_it_does(tree: ast.Module) -> str:
    """The text of a module without comments, docstrings and layout: modules with equal texts do the same. Changes the
    tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, of a module, class, function or field."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
