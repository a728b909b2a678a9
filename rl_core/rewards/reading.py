"""What a reward file says of itself, read as text: nothing of it runs in this process."""

import ast
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ANY_NAME = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceText:
    """The top level of a Python file.

    Attributes:
        names: Names that are bound when the file is imported; "*" among them after a star import.
        constants: The values of those that are plain literals.
        functions: Those that are functions of this file.
    """

    names: frozenset[str]
    constants: Mapping[str, object]
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]

    def may_define(self, name: str) -> bool:
        """Whether importing the file can bind `name`."""
        return name in self.names or _ANY_NAME in self.names

    def is_async(self, function: str) -> bool:
        """Whether it is an `async def` of this file."""
        return isinstance(self.functions.get(function), ast.AsyncFunctionDef)

    def parameters(self, function: str) -> list[str]:
        """Names of a function's parameters; none for one that is not defined here."""
        definition = self.functions.get(function)
        if definition is None:
            return []
        arguments = definition.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def read_source(path: Path) -> SourceText:
    """Parse a file. Raises ValueError naming the line where it is no Python, or saying that its encoding is wrong."""
    text = _text_of(path)
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise ValueError(f"reward file {path} is no Python: line {error.lineno}: {error.msg}") from None
    statements = list(_module_level(tree.body))
    return SourceText(
        names=frozenset(name for statement in statements for name in _names_bound_by(statement)),
        constants={name: value for statement in statements for name, value in _literals_of(statement)},
        functions={s.name: s for s in statements if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)},
    )


def _text_of(path: Path) -> str:
    """As Python reads it: in the encoding that its first lines name, or in UTF-8."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(
            f"reward file {path} is no text that Python can read ({error}): save it as UTF-8, or name its encoding in "
            "the first line"
        ) from None


def _module_level(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file is imported, those inside `if`, `try` and `with` included."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for _, block in ast.iter_fields(statement):
                if isinstance(block, list):
                    yield from _module_level([inner for inner in block if isinstance(inner, ast.stmt)])


def _names_bound_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    else:
        yield from (target.id for target in _targets(statement) if isinstance(target, ast.Name))


def _targets(statement: ast.stmt) -> Sequence[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _literals_of(statement: ast.stmt) -> Iterator[tuple[str, object]]:
    if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
        for name in _names_bound_by(statement):
            yield name, statement.value.value
