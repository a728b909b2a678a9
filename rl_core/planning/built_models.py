"""Calls `rl_core/planning/meta_model.py` for a config.json without loading torch in this process, and remembers the
result between processes.

If torch is loaded already, as in a run, the model is built in this process; otherwise another process builds it, which
takes some seconds. The result is kept in `$XDG_CACHE_HOME/sightline/models` (`~/.cache/sightline/models`), one
JSON file for each config.json and version of torch and transformers. These files may be deleted at any time.
"""

import hashlib
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rl_core.files import atomic_write_bytes, read_json

SECONDS: Final = 120.0
"""How long the other process may take; most of it is the import of torch and transformers."""

_BUILDER: Final = "rl_core.planning.meta_model"
_BUILDER_FILE: Final = Path(__file__).with_name("meta_model.py")

logger = logging.getLogger(__name__)


def describe_model(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The result of `meta_model.describe`; None, with a warning, where the other process died or took more than
    `SECONDS`.

    Raises:
        ValueError: no model can be built of these fields; the message says why.
    """
    described = _described(json.dumps(fields, sort_keys=True))
    if described is not None and "error" in described:
        raise ValueError(described["error"])
    return described


@lru_cache(maxsize=16)
def _described(fields: str) -> Mapping[str, Any] | None:
    file = _cache_file(fields)
    remembered = None if file is None else _read(file)
    if remembered is not None:
        return remembered
    described = _built_here(fields) if "torch" in sys.modules else _built_elsewhere(fields)
    if file is not None and described is not None and "error" not in described:
        _write(file, described)
    return described


def _built_here(fields: str) -> Mapping[str, Any]:
    builder = importlib.import_module(_BUILDER)  # by name: a plan must not load torch
    try:
        described: Mapping[str, Any] = builder.describe(json.loads(fields))
    except ValueError as error:
        return {"error": str(error)}
    return described


def _built_elsewhere(fields: str) -> Mapping[str, Any] | None:
    command = [sys.executable, "-P", str(_BUILDER_FILE)]
    try:
        done = subprocess.run(command, input=fields, text=True, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        logger.warning("the model's parameters are not known: counting them took more than %g seconds", SECONDS)
        return None
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        logger.warning(
            "the model's parameters are not known: the process that counts them ended with status %d: %s",
            done.returncode,
            last,
        )
        return None
    described: Mapping[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return described


def _cache_file(fields: str) -> Path | None:
    """Where the result is kept; None for a user without a home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return None
    return cache / "sightline" / "models" / f"{_digest(fields)}.json"


def _digest(fields: str) -> str:
    """Digest of everything that the result depends on: the config.json, the packages that build the model, and the code
    that describes it."""
    packages = f"torch {version('torch')}, transformers {version('transformers')}"
    code = _BUILDER_FILE.read_text()
    return hashlib.sha256("\n".join((fields, packages, code)).encode()).hexdigest()[:16]


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        value = read_json(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and "parameters" in value else None


def _write(file: Path, described: Mapping[str, Any]) -> None:
    try:
        atomic_write_bytes(file, json.dumps(described).encode())
    except OSError:
        logger.debug("the parameters of the model are counted again next time: %s cannot be written", file)
