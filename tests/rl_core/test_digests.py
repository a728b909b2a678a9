"""A file is hashed once, and again as soon as it has changed; sealed JSON is read back or refused."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from rl_core import digests
from rl_core.digests import LEAST_BYTES, file_digest, hash_file, hash_files, note_hash, sealed, unsealed


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def large(tmp_path) -> Path:
    path = tmp_path / "folder" / "large"
    path.parent.mkdir()
    path.write_bytes(os.urandom(LEAST_BYTES))
    return path


def test_a_large_file_is_read_once_also_under_another_name(large, monkeypatch):
    found = hash_file(large)
    assert found == sha256(large)
    monkeypatch.setattr(digests.hashlib, "file_digest", None)  # a second reading would fail
    folder = large.parent.rename(large.parent.with_name("renamed"))
    assert hash_file(folder / "large") == found
    os.link(folder / "large", folder / "linked")
    assert hash_files([folder / "linked", folder / "large"]) == [found, found]


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _flip(path: Path) -> None:
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    status = path.stat()  # a clock that ticks slowly could leave the same time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(os.urandom(path.stat().st_size))
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [_append, _flip, _replace])
def test_a_file_that_has_changed_is_read_again(large, change):
    before = hash_file(large)
    change(large)
    assert hash_file(large) == sha256(large) != before


def test_a_small_file_is_always_read_unless_it_is_an_input(tmp_path):
    path = tmp_path / "small"
    path.write_bytes(bytes(LEAST_BYTES - 1))
    note_hash(path.stat(), "noted")
    assert file_digest(path) == "noted"
    assert hash_file(path) == file_digest(path) == sha256(path)


@pytest.mark.parametrize("content", [{}, {"a": [1, None], "b": {"c": "d"}}])
def test_a_sealed_object_is_read_back(content):
    assert unsealed(json.loads(json.dumps(sealed(content)))) == content


@pytest.mark.parametrize(
    "content", [None, [1], {}, {"a": 1}, {**sealed({"a": 1}), "a": 2}, {**sealed({"a": 1}), "b": 0}]
)
def test_anything_else_is_refused(content):
    with pytest.raises(ValueError, match=r"is not a JSON object|its own SHA-256 does not match"):
        unsealed(content)
