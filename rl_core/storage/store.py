"""The copy of one run in a storage. Content first, its record last: a record is written when every file that it names
is there and was read back with its hash, so that an outage at any moment leaves a record whole or not there.

    <address>/<run>/records/NAME.json     what is there: a stage, a checkpoint, the newest progress
    <address>/<run>/objects/SHA256        content, once for all records that name it
    <address>/<run>/writer.json           who copies: the process that began last
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from rl_core.storage.record import Record, StoredFile, parse_record

if TYPE_CHECKING:
    from rl_core.storage.place import Place

_THREADS = 8
"""Files that are copied at a time: a rollout's file is small, and an answer of a far store takes its time."""

_WRITER = "writer.json"

Item = TypeVar("Item")
Made = TypeVar("Made")

Locate = Callable[[str], Path]
"""Maps a path relative to the run's folder to the file that is read or written for it."""


class StorageDamaged(ValueError):
    """What lies in the storage is not what its record says; the message names the object."""


class TakenOver(RuntimeError):
    """Another process copies this run now: it was continued elsewhere."""


class SourceChanged(ValueError):
    """A file of the run is no longer what its manifest says, so that it is not copied; the message names it."""


class RunStore:
    """The records and objects of one run, for one writer. Not for several threads at a time, reading apart.

    Args:
        place: The run's folder in the storage.
        verify: Read back and hash what was copied; otherwise the storage is believed.
    """

    def __init__(self, place: "Place", *, verify: bool) -> None:
        self._place = place
        self._verify = verify
        self._identity = uuid4().hex
        self._is_claimed = False
        self._records: dict[str, Record] | None = None

    def records(self) -> Mapping[str, Record]:
        """The records by name, read once: there is one writer. Raises OSError when the storage does not answer."""
        if self._records is None:
            names = [name for name in self._place.names("records") if name.endswith(".json")]
            found = _each(self._read, names)
            self._records = {record.name: record for record in found if record is not None}
        return self._records

    def known(self) -> set[str]:
        """Hashes of the content that is there, as far as the records were read: the storage is not asked."""
        return self._named_objects((self._records or {}).values())

    def claim(self) -> None:
        """Make this process the one that copies. The first time it removes objects that no record names, which a
        process left that ended while it copied.

        Raises:
            TakenOver: another process began to copy later.
            OSError: the storage does not answer.
        """
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
            return  # somebody removed it, and nobody else began
        if writer["id"] != self._identity:
            raise TakenOver(f"the process {writer['pid']} on {writer['host']} copies this run now")

    def save(self, record: Record, locate: Locate) -> None:
        """Copy the files of a record that no other record names, then put the record in place of an earlier one.

        Raises:
            SourceChanged: a file is not what the record says.
            StorageDamaged: the storage gives back something else than it was given.
            OSError: a file or the storage cannot be read or written.
        """
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

    def fetch(self, files: Mapping[str, StoredFile], locate: Locate) -> None:
        """Copy files of records from the storage to where `locate` says; what was there is replaced.

        Raises:
            StorageDamaged: an object is missing or not what its record says.
            OSError: a file or the storage cannot be read or written.
        """
        _each(lambda one: self._get(one[1], locate(one[0])), files.items())

    def _read(self, name: str) -> Record | None:
        try:
            return parse_record(self._place.read(f"records/{name}"))
        except FileNotFoundError:
            return None  # another process removed it since

    def _put(self, source: Path, path: str, file: StoredFile) -> None:
        name = f"objects/{file.sha256}"
        if self._place.put(source, name, size=file.size) != file.sha256:
            raise SourceChanged(f"{path} is not what its manifest says, so that it is not copied")
        if self._verify and self._place.digest(name) != file.sha256:
            raise StorageDamaged(f"{path} was copied, and the storage gives back something else")

    def _get(self, file: StoredFile, target: Path) -> None:
        name = f"objects/{file.sha256}"
        try:
            found = self._place.get(name, target)
        except FileNotFoundError:
            raise StorageDamaged(f"{name} is missing in the storage, though a record names it") from None
        if found != file.sha256:
            raise StorageDamaged(f"{name} in the storage has another content (SHA-256 {found})")

    def _named_objects(self, records: Iterable[Record]) -> set[str]:
        return {file.sha256 for record in records for file in record.files.values()}

    def _remove_objects(self, names: set[str]) -> None:
        """Those of them that no record names any more."""
        for name in sorted(names - self._named_objects(self.records().values())):
            self._place.remove(f"objects/{name}")


def _each(action: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """The action's results, several at a time. The first failure drops those that have not begun: a store that is away
    would be asked for each."""
    with ThreadPoolExecutor(_THREADS) as threads:
        begun = [threads.submit(action, item) for item in items]
        try:
            return [one.result() for one in begun]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
