"""The code of a Python module without comments, docstrings and layout."""

import ast


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
