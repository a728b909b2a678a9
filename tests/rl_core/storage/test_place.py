"""A path of this machine, an object store and any other file system of fsspec are one kind of place."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from rl_core.storage.place import Place

MAKERS: dict[str, Callable[[Path], str]] = {
    "path": lambda folder: str(folder / "share"),
    "file": lambda folder: f"file://{folder / 'share'}",
    "memory": lambda folder: f"memory://{uuid4().hex}",
    "s3": lambda folder: f"s3://runs/{uuid4().hex}/",
}


@pytest.fixture(params=sorted(MAKERS))
def place(request, tmp_path, s3) -> Place:
    return Place.at(MAKERS[request.param](tmp_path)).below("run-1")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 9_000_000])
def test_a_file_comes_back_as_it_was_given(place, tmp_path, size):
    data = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    (tmp_path / "file").write_bytes(data + b"appended since")
    assert place.put(tmp_path / "file", "objects/one", size=size) == sha(data)
    assert place.digest("objects/one") == sha(data)
    assert place.get("objects/one", tmp_path / "deep" / "copy") == sha(data)
    assert (tmp_path / "deep" / "copy").read_bytes() == data


def test_a_written_object_is_read_listed_replaced_and_removed(place):
    assert place.names("records") == []
    for name in ("b.json", "a.json"):
        place.write(f"records/{name}", b"one")
    place.write("records/a.json", b"two")
    place.write("writer.json", b"me")
    assert place.names("records") == ["a.json", "b.json"]
    assert (place.read("records/a.json"), place.read("records/b.json")) == (b"two", b"one")
    place.remove("records/a.json")
    place.remove("records/a.json")
    assert place.names("records") == ["b.json"]


def test_a_missing_object_is_reported_as_such(place, tmp_path):
    for ask in (place.read, place.digest, lambda name: place.get(name, tmp_path / "copy")):
        with pytest.raises(FileNotFoundError):
            ask("objects/none")


def test_two_runs_of_one_place_do_not_see_each_other(place):
    place.write("records/a.json", b"one")
    assert place.below("other").names("records") == []


@pytest.mark.parametrize("address", ["nonsense://somewhere", "abfs://container/folder"])
def test_an_address_that_nobody_can_reach_is_named(address):
    with pytest.raises(ValueError, match=address):
        Place.at(address)


def test_a_store_that_is_away_is_an_error_of_the_system(s3, tmp_path):
    place = Place.at(f"s3://runs/{uuid4().hex}")
    place.write("a", b"one")
    (tmp_path / "file").write_bytes(b"one")
    s3.stop()
    try:
        for ask in (lambda: place.names(""), lambda: place.put(tmp_path / "file", "b", size=3)):
            with pytest.raises(OSError):
                ask()
    finally:
        s3.start()
    assert place.read("a") == b"one"
