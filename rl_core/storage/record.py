"""A record in a storage: files by path and hash, and small facts. A record is the commit marker of its files: if it
exists, they are complete."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rl_core.files import relative_name

_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """The SHA-256 and the size in bytes of a file's content."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A set of files that belong together.

    Attributes:
        name: Its name in the storage.
        facts: JSON values.
        files: By their path relative to the run's folder.
    """

    name: str
    facts: Mapping[str, Any]
    files: Mapping[str, StoredFile]

    @property
    def num_bytes(self) -> int:
        """Size of all its files."""
        return sum(file.size for file in self.files.values())

    def to_bytes(self) -> bytes:
        """The record as JSON with its own digest. Equal records give equal bytes."""
        files = {path: asdict(file) for path, file in self.files.items()}
        content = {"format": _FORMAT, "name": self.name, "facts": dict(self.facts), "files": files}
        return _canonical(content | {"sha256": hashlib.sha256(_canonical(content)).hexdigest()})


def parse_record(data: bytes) -> Record | None:
    """The record that `to_bytes` wrote; None for anything else, such as a file that an outage has cut off."""
    try:
        content = dict(json.loads(data))
        digest = content.pop("sha256")
        if hashlib.sha256(_canonical(content)).hexdigest() != digest or content.pop("format") != _FORMAT:
            return None
        files = {relative_name(path): StoredFile(**file) for path, file in content.pop("files").items()}
        return Record(files=files, **content)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()
