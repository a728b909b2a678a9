"""A record in a storage: files by path and hash, and small facts. A record is the commit marker of its files: if it
exists, they are complete."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from rl_core.digests import FileRecord, RelativeName, sealed, unsealed


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
    files: Mapping[RelativeName, FileRecord]

    @property
    def num_bytes(self) -> int:
        """Size of all its files."""
        return sum(file.size for file in self.files.values())

    def to_bytes(self) -> bytes:
        """The record as JSON with a hash of its own. Equal records give equal bytes."""
        return json.dumps(sealed(_RECORD.dump_python(self, mode="json")), sort_keys=True, allow_nan=False).encode()


_RECORD: Final = TypeAdapter(Record)


def parse_record(data: bytes) -> Record | None:
    """The record that `to_bytes` wrote; None for anything else, such as a file that an outage has cut off."""
    try:
        return _RECORD.validate_python(unsealed(json.loads(data)))
    except (ValueError, RecursionError):
        return None
