"""From `reward.function` to what the scoring processes load. Nothing of a user's file runs here."""

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rl_core.config.training import RewardConfig
from rl_core.rewards.spec import PARSER, RewardSpec

BUILTIN = {name: f"rl_core.rewards.builtin.{name}" for name in ("count", "math", "r1v")}
BUILTIN_FUNCTION = "compute_score"
_ANY_NAME = "*"


def resolve_reward(config: RewardConfig) -> RewardSpec:
    """Find the configured function. A user's file is read as text and never imported in this process.

    Raises:
        ValueError: no such built-in, no such file, a file that is no Python, or no such function in it; the message
            names it and the nearest one there is.
    """
    if _looks_like_a_file(config.function):
        return _resolve_file(config)
    if config.function not in BUILTIN:
        hint = _nearest(config.function, BUILTIN)
        raise ValueError(
            f"reward.function {config.function!r} is no built-in reward{hint}; "
            "for one of your own write path/to/file.py:function"
        )
    return RewardSpec(
        name=config.function,
        source=BUILTIN[config.function],
        function=BUILTIN_FUNCTION,
        kwargs=config.kwargs,
        has_parser=True,
    )


def _looks_like_a_file(name: str) -> bool:
    return ":" in name or "/" in name or name.endswith(".py")


def _resolve_file(config: RewardConfig) -> RewardSpec:
    path_text, separator, function = config.function.rpartition(":")
    if not separator or not path_text.endswith(".py") or not function:
        raise ValueError(f"reward.function {config.function!r} must read path/to/file.py:function")
    path = Path(path_text).resolve()
    if not path.is_file():
        raise ValueError(f"reward.function {config.function!r}: there is no file {path}")
    names = _top_level_names(path)
    if function not in names and _ANY_NAME not in names:
        hint = _nearest(function, sorted(names))
        raise ValueError(f"reward.function {config.function!r}: {path} defines no `{function}`{hint}")
    return RewardSpec(
        name=config.function, source=path, function=function, kwargs=config.kwargs, has_parser=PARSER in names
    )


def _top_level_names(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise ValueError(f"reward file {path} is no Python: line {error.lineno}: {error.msg}") from None
    return {name for statement in _module_level(tree.body) for name in _names_bound_by(statement)}


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
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _nearest(name: str, names: Sequence[str] | Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f" (there is {', '.join(names)})" if names else ""
