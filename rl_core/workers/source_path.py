"""Where another process finds these sources, and whether it has the same ones."""

import os
from pathlib import Path
from typing import Final

import rl_core
from rl_core.digests import digest_of, file_digest

_FOLDER: Final = Path(rl_core.__file__).parent


def with_these_sources() -> str:
    """A value of PYTHONPATH with which a process imports the same rl_core as this one."""
    sources = str(_FOLDER.parent)
    return os.pathsep.join(filter(None, (sources, os.environ.get("PYTHONPATH"))))


def sources_digest() -> str:
    """Digest of the sources of rl_core from which this process imports."""
    return digest_of({f"{path.relative_to(_FOLDER)}": file_digest(path) for path in sorted(_FOLDER.rglob("*.py"))})
