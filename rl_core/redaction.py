"""Keeps secrets out of everything that is written: logs, events, trackers, reports, model cards. Secrets come from the
environment only: the values of variables whose names say so, and passwords inside addresses. Every text is searched for
these values before it is written, however they got into it."""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

HIDDEN = "***"

SHORTEST_SECRET = 6
"""Fewest characters of a secret. Shorter values are not replaced, because they occur in any text."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSPHRASE|CREDENTIALS?|APIKEY|KEY|AUTH_STRING)(_|$)|PASSWORD|PASSWD", re.I
)
_PASSWORD_IN_ADDRESS = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]{0,31}://[^\s/:@]*:)(?P<password>[^\s/@]+)(?=@)", re.I)
_SECRET_IN_QUERY = re.compile(
    r"(?P<before>[?&][\w-]*(?:password|passwd|token|secret|api_?key)=)(?P<password>[^\s&#'\"]+)", re.I
)


def redact(text: str) -> str:
    """`text` with `[NAME]` in place of the value of each secret variable, and `***` for passwords in addresses."""
    for value, name in _secrets(tuple(os.environ.items())):
        text = text.replace(value, f"[{name}]")
    return redact_addresses(text)


def redact_addresses(text: str) -> str:
    """`text` with `***` in place of the passwords of addresses: `scheme://user:password@host`, `?token=value`."""
    for pattern in (_PASSWORD_IN_ADDRESS, _SECRET_IN_QUERY):
        text = pattern.sub(rf"\g<before>{HIDDEN}", text)
    return text


def redact_tree(value: Any, hides: Callable[[str], bool] = lambda name: False) -> Any:
    """Nested mappings and lists with every text redacted, and `***` for the items whose names are to be hidden."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {name: HIDDEN if hides(f"{name}") else redact_tree(item, hides) for name, item in value.items()}
        case list() | tuple():
            return [redact_tree(item, hides) for item in value]
        case _:
            return value


def is_secret_name(variable: str) -> bool:
    """Whether the value of an environment variable with this name is a secret."""
    return _SECRET_NAME.search(variable) is not None


def redact_logs() -> None:
    """From now on, remove secrets from all log records of this process when they are created, since handlers come and
    go."""
    if not isinstance(logging.getLogRecordFactory(), _RedactingFactory):
        logging.setLogRecordFactory(_RedactingFactory(logging.getLogRecordFactory()))


class _RedactingFactory:
    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):  # the arguments do not fit the message; the handler reports it
            return record
        redacted = redact(message)
        if redacted != message:
            record.msg, record.args = redacted, None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return record


@lru_cache(maxsize=1)  # torch logs two records for each tensor that it saves, and the environment rarely changes
def _secrets(environment: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """(secret value, name of its variable), longest value first."""
    found = {value: name for name, value in _candidates(environment) if len(value) >= SHORTEST_SECRET}
    return tuple(sorted(found.items(), key=lambda secret: -len(secret[0])))


def _candidates(environment: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    for name, value in environment:
        if is_secret_name(name):
            yield name, value
        elif "://" in value:
            for pattern in (_PASSWORD_IN_ADDRESS, _SECRET_IN_QUERY):
                yield from ((name, match["password"]) for match in pattern.finditer(value))
