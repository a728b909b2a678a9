"""Whatever fails in the middle, what the storage holds is whole: the earlier records or the new ones."""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.digests import FileRecord
from rl_core.storage.place import Place
from rl_core.storage.store import Record, RunStore, SourceChanged, StorageDamaged, TakenOver


def record_of(folder: Path, name: str, contents: Mapping[str, bytes], **facts: Any) -> Record:
    """Write the files and describe them."""
    for path, data in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    files = {
        path: FileRecord(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for path, data in contents.items()
    }
    return Record(name=name, facts=facts, files=files)


def fetched(store: RunStore, record: Record, folder: Path) -> dict[str, bytes]:
    store.fetch(record.files, lambda path: folder / path)
    return {path: (folder / path).read_bytes() for path in record.files}


@dataclass(frozen=True, kw_only=True)
class FailingPlace(Place):
    """A place that stops answering after so many calls, with a part of what it was to write."""

    budget: list[int] = field(default_factory=lambda: [1 << 30])

    def _spend(self) -> None:
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise OSError("the store went away")

    def names(self, folder: str) -> list[str]:
        self._spend()
        return super().names(folder)

    def read(self, name: str) -> bytes:
        self._spend()
        return super().read(name)

    def write(self, name: str, data: bytes) -> None:
        try:
            self._spend()
        except OSError:
            if self.kind != "folder":
                super().write(name, data[: len(data) // 2])
            raise
        super().write(name, data)

    def remove(self, name: str) -> None:
        self._spend()
        super().remove(name)

    def put(self, file: Path, name: str, *, size: int) -> str:
        try:
            self._spend()
        except OSError:
            super().put(file, name, size=size // 2)
            raise
        return super().put(file, name, size=size)

    def digest(self, name: str) -> str:
        self._spend()
        return super().digest(name)


contents = st.dictionaries(st.sampled_from("abcd"), st.binary(min_size=1, max_size=3), min_size=1)


@settings(max_examples=40)
@given(earlier=contents, later=contents, calls=st.integers(0, 30))
def test_an_outage_leaves_the_earlier_record_or_the_new_one_and_the_next_try_mends_it(earlier, later, calls):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        here = Place.at(str(root / "store"))
        first = RunStore(here, verify=True)
        first.claim()
        first.save(record_of(root / "run", "stage", earlier, number=1), lambda path: root / "run" / path)

        place = FailingPlace(system=here.system, root=here.root, kind=here.kind, budget=[calls])
        second = RunStore(place, verify=True)
        new = record_of(root / "run", "stage", later, number=2)

        def copy():
            second.claim()
            second.save(new, lambda path: root / "run" / path)
            second.save(record_of(root / "run", "other", {"e": b"more"}), lambda path: root / "run" / path)
            second.drop(["other"])

        try:
            copy()
        except OSError:
            reader = RunStore(here, verify=True)
            for number, record in enumerate(reader.records().values()):
                expected = {1: earlier, 2: later, None: {"e": b"more"}}[record.facts.get("number")]
                assert fetched(reader, record, root / f"copy-{number}") == expected
            assert "stage" in reader.records()
            place.budget[0] = 1 << 30
            copy()
        reader = RunStore(here, verify=True)
        assert list(reader.records().values()) == [new]
        assert fetched(reader, new, root / "copy") == later
        RunStore(here, verify=True).claim()  # removes what a process left that ended while it copied
        assert set(here.names("objects")) == {file.sha256 for file in new.files.values()}


def test_content_that_two_records_name_is_copied_once_and_stays_until_both_are_gone(tmp_path):
    place = Place.at(str(tmp_path / "store"))
    store = RunStore(place, verify=True)
    store.claim()
    for name in ("one", "two"):
        store.save(record_of(tmp_path / name, name, {"x": b"same"}), lambda path, name=name: tmp_path / name / path)
    assert len(place.names("objects")) == 1
    store.drop(["one"])
    assert len(place.names("objects")) == 1
    store.drop(["two", "never"])
    assert place.names("objects") == [] and store.records() == {}


def test_a_file_that_is_not_what_its_manifest_says_is_not_copied(tmp_path):
    store = RunStore(Place.at(str(tmp_path / "store")), verify=False)
    record = record_of(tmp_path, "stage", {"a": b"one"})
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(SourceChanged, match="a does not match its manifest"):
        store.save(record, lambda path: tmp_path / path)
    assert RunStore(Place.at(str(tmp_path / "store")), verify=False).records() == {}


def test_a_storage_that_alters_what_it_is_given_is_noticed_where_it_is_read_back(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Altering(Place):
        def put(self, file, name, *, size):
            found = super().put(file, name, size=size)
            super().write(name, b"x" * size)
            return found

    here = Place.at(str(tmp_path / "store"))
    place = Altering(system=here.system, root=here.root, kind=here.kind)
    record = record_of(tmp_path, "stage", {"a": b"one"})
    with pytest.raises(StorageDamaged, match="returns different content"):
        RunStore(place, verify=True).save(record, lambda path: tmp_path / path)
    RunStore(place, verify=False).save(record, lambda path: tmp_path / path)


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_damaged_object_is_named_where_it_is_fetched(tmp_path, damage):
    place = Place.at(str(tmp_path / "store"))
    store = RunStore(place, verify=True)
    record = record_of(tmp_path, "stage", {"a": b"one"})
    store.save(record, lambda path: tmp_path / path)
    name = f"objects/{record.files['a'].sha256}"
    place.remove(name) if damage == "missing" else place.write(name, b"two")
    with pytest.raises(StorageDamaged, match=name):
        fetched(RunStore(place, verify=True), record, tmp_path / "copy")


def test_the_process_that_began_last_copies_and_the_earlier_one_notices(tmp_path):
    first, second = (RunStore(Place.at(str(tmp_path / "store")), verify=True) for _ in range(2))
    first.claim()
    first.claim()
    second.claim()
    with pytest.raises(TakenOver, match="now copies this run"):
        first.claim()
    second.claim()
