"""From `reward.function` to what the scoring processes load. Nothing of a user's file runs here."""

import difflib
from collections.abc import Iterable
from pathlib import Path

import rl_core.rewards.builtin
from rl_core.config.training import RewardConfig
from rl_core.rewards.reading import read_source
from rl_core.rewards.spec import PARSER, RewardSpec

_FOLDER = Path(rl_core.rewards.builtin.__file__).parent
BUILTIN = {path.stem: f"{rl_core.rewards.builtin.__name__}.{path.stem}" for path in sorted(_FOLDER.glob("[!_]*.py"))}
BUILTIN_FUNCTION = "compute_score"


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
        has_parser=PARSER in read_source(_FOLDER / f"{config.function}.py").names,
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
    source = read_source(path)
    if not source.may_define(function):
        hint = _nearest(function, sorted(source.names))
        raise ValueError(f"reward.function {config.function!r}: {path} defines no `{function}`{hint}")
    return RewardSpec(
        name=config.function, source=path, function=function, kwargs=config.kwargs, has_parser=PARSER in source.names
    )


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f" (there is {', '.join(names)})" if names else ""
