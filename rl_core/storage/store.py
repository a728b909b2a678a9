"""The copy of one run in a storage.

Content is written first and its record last: a record is written after every file that it names has been copied and
verified, so that an outage at any moment leaves either a valid record or none.

    <address>/<run>/records/NAME.json     what has been copied: a stage, a checkpoint, the newest progress
    <address>/<run>/objects/SHA256        the content of a file, shared by all records that name it
    <address>/<run>/writer.json           the process that copies: the one that began last
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter

from rl_core.digests import FileRecord, RelativeName, sealed, unsealed

if TYPE_CHECKING:
    from rl_core.storage.place import Place

_THREADS = 8
"""Number of files that are copied at a time: a rollout file is small, and a remote store takes long to answer."""

_WRITER = "writer.json"

Item = TypeVar("Item")
Made = TypeVar("Made")

Locate = Callable[[str], Path]
"""Maps a path relative to the run's folder to the file to read or write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A set of files by their path relative to the run's folder, with some facts. It is their commit marker: if it
    exists, they are complete."""

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


class StorageDamaged(ValueError):
    """The content in the storage does not match its record."""


class TakenOver(RuntimeError):
    """Another process now copies this run."""


class SourceChanged(ValueError):
    """A file of the run no longer matches its manifest, so it is not copied."""


class RunStore:
    """The records and objects of one run, with a single writer. `verify`: read back and hash every copied file. Only
    reading is thread-safe."""

    def __init__(self, place: "Place", *, verify: bool) -> None:
        self._place = place
        self._verify = verify
        self._identity = uuid4().hex
        self._is_claimed = False
        self._records: dict[str, Record] | None = None

    def records(self) -> Mapping[str, Record]:
        """The records by name, read only once."""
        if self._records is None:
            names = [name for name in self._place.names("records") if name.endswith(".json")]
            found = _each(self._read, names)
            self._records = {record.name: record for record in found if record is not None}
        return self._records

    def known(self) -> set[str]:
        """Hashes of the content in the storage, as far as records were read."""
        return self._named_objects((self._records or {}).values())

    def claim(self) -> None:
        """Make this process the writer. The first call also removes objects that no record names, left by a process
        that ended while it copied. Raises TakenOver if another process became the writer later."""
        if not self._is_claimed:
            writer = {"id": self._identity, "host": socket.gethostname(), "pid": os.getpid()}
            self._place.write(_WRITER, json.dumps(writer).encode())
            self._records = None
            self._is_claimed = True
            self._remove_objects(set(self._place.names("objects")))
            return
        try:
            writer = json.loads(self._place.read(_WRITER))
        except (FileNotFoundError, ValueError):
            return  # the file was removed, but no other process became the writer
        if writer["id"] != self._identity:
            raise TakenOver(f"the process {writer['pid']} on {writer['host']} now copies this run")

    def save(self, record: Record, locate: Locate) -> None:
        """Copy the files of a record that no other record names, then write the record or replace an earlier one.
        Raises SourceChanged, and StorageDamaged where the storage does not return what was written."""
        earlier = self.records().get(record.name)
        present = self._named_objects(self.records().values())
        missing = {file.sha256: (path, file) for path, file in record.files.items() if file.sha256 not in present}
        _each(lambda one: self._put(locate(one[0]), *one), missing.values())
        self._place.write(f"records/{record.name}.json", record.to_bytes())
        self._records = {**self.records(), record.name: record}
        if earlier is not None:
            self._remove_objects(self._named_objects([earlier]))

    def drop(self, names: Iterable[str]) -> None:
        """Remove records, and the objects that no other record names."""
        for name in names:
            record = self.records().get(name)
            if record is None:
                continue
            self._place.remove(f"records/{name}.json")
            self._records = {other: kept for other, kept in self.records().items() if other != name}
            self._remove_objects(self._named_objects([record]))

    def fetch(self, files: Mapping[str, FileRecord], locate: Locate) -> None:
        """Copy files of records. Raises StorageDamaged where an object is missing or differs."""
        _each(lambda one: self._get(one[1], locate(one[0])), files.items())

    def _read(self, name: str) -> Record | None:
        try:
            return parse_record(self._place.read(f"records/{name}"))
        except FileNotFoundError:
            return None  # another process has removed it in the meantime

    def _put(self, source: Path, path: str, file: FileRecord) -> None:
        name = f"objects/{file.sha256}"
        if self._place.put(source, name, size=file.size) != file.sha256:
            raise SourceChanged(f"{path} does not match its manifest, so it is not copied")
        if self._verify and self._place.digest(name) != file.sha256:
            raise StorageDamaged(f"{path} was copied, but the storage returns different content")

    def _get(self, file: FileRecord, target: Path) -> None:
        name = f"objects/{file.sha256}"
        try:
            found = self._place.get(name, target)
        except FileNotFoundError:
            raise StorageDamaged(f"{name} is missing in the storage, although a record names it") from None
        if found != file.sha256:
            raise StorageDamaged(f"{name} in the storage has different content (SHA-256 {found})")

    def _named_objects(self, records: Iterable[Record]) -> set[str]:
        return {file.sha256 for record in records for file in record.files.values()}

    def _remove_objects(self, names: set[str]) -> None:
        for name in sorted(names - self._named_objects(self.records().values())):
            self._place.remove(f"objects/{name}")


def _each(action: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """The results of the action, which runs for several items at a time. After a failure no further one is started."""
    with ThreadPoolExecutor(_THREADS) as threads:
        begun = [threads.submit(action, item) for item in items]
        try:
            return [one.result() for one in begun]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
