"""Reads the shell scripts in which EasyR1's experiments are written: variables, and one call of its trainer."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_core.config.loading import ConfigError
from rl_core.files import read_utf8

_MODULE = "verl.trainer.main"
_ARGUMENTS_OF_THE_SCRIPT = ("$@", "$*")
_ENDS = ";&|\n"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


def training_words(script: Path) -> list[str]:
    """The words after `python3 -m verl.trainer.main` in a script, with the values of the script's variables. Raises
    ConfigError where there is not exactly one such call, or a variable has no value in the script."""
    variables: dict[str, str] = {}
    calls = []
    for words in _statements(script):
        if _MODULE in words:
            given = words[words.index(_MODULE) + 1 :]
            filled = [_filled(word, variables) for word in given if word not in _ARGUMENTS_OF_THE_SCRIPT]
            if unknown := next(filter(None, map(_VARIABLE.search, filled)), None):
                raise ConfigError(f"{script}: the variable {unknown[0]} has no value in the script: write it there")
            calls.append(filled)
            continue
        assignments = [_ASSIGNMENT.fullmatch(word) for word in words if word not in ("export", "local", "readonly")]
        if all(assignments):
            for name, value in (match.groups() for match in assignments if match):
                variables[name] = _filled(value, variables)
    if len(calls) != 1:
        raise ConfigError(f"{script} calls `python3 -m {_MODULE}` {len(calls)} times: an import reads one call")
    return calls[0]


def _statements(script: Path) -> list[Sequence[str]]:
    """The words of each command. A backslash at the end of a line continues it."""
    lexer = shlex.shlex(read_utf8(script).replace("\\\n", " "), posix=True, punctuation_chars=_ENDS)
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    statements: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word.strip(_ENDS):
                statements[-1].append(word)
            else:
                statements.append([])
    except ValueError as error:
        raise ConfigError(f"{script} is no shell script that can be read: {error}") from None
    return [words for words in statements if words]


def _filled(word: str, variables: Mapping[str, str]) -> str:
    """The word with the values of variables; one that has none stays as it is."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[2], match[0] if match[3] is None else match[3])

    return _VARIABLE.sub(value, word)
