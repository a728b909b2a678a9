"""Files and folders are there whole or not at all."""

import errno
import glob
import json
import os
import shutil
import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core import files
from rl_core.digests import folder_records
from rl_core.files import numbered


def hidden(parent: Path) -> list[str]:
    return [path.name for path in parent.iterdir() if path.name.startswith(".")]


def test_content_is_on_the_disk_before_the_name_and_the_name_before_anything_else(tmp_path, monkeypatch):
    """A power cut keeps what was flushed and may reorder the rest, so the order of the flushes is the guarantee."""
    calls = []
    fsync = os.fsync

    def recorded_fsync(descriptor):
        calls.append(f"flush {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    for name in ("replace", "rename"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda a, b, real=real: (calls.append(f"name {Path(b).name}"), real(a, b)))
    files.atomic_write_bytes(tmp_path / "file", b"x")
    pid = os.getpid()
    assert calls == [f"flush .file.tmp-{pid}", "name file", f"flush {tmp_path.name}"]
    calls.clear()
    _write_folder(tmp_path / "stage", "x")
    flushed = [f"flush {name}" for name in ("a", "b", "c", "inner", f".stage.tmp-{pid}")]
    assert calls == [*flushed, "name stage", f"flush {tmp_path.name}"]


def test_a_kill_anywhere_in_a_file_replacement_leaves_the_old_or_the_new_file(tmp_path, killed_before_each_call):
    path, seen = tmp_path / "state.json", set()
    kills = killed_before_each_call(
        lambda: files.atomic_write_json(path, {"state": "old"}),
        lambda: files.atomic_write_json(path, {"state": "new"}),
        lambda: seen.add(json.loads(path.read_text())["state"]),
    )
    assert seen == {"old", "new"} and kills == 4  # parent mkdir, fsync of the file, replace, fsync of the folder
    assert json.loads(path.read_text()) == {"state": "new"}
    files.sweep_temporaries(tmp_path)
    assert hidden(tmp_path) == []


def test_a_kill_anywhere_in_a_folder_replacement_leaves_the_old_or_the_new_folder(tmp_path, killed_before_each_call):
    final = tmp_path / "stage"
    seen = set()

    def prepare():
        shutil.rmtree(final, ignore_errors=True)
        _write_folder(final, "old")

    def check():
        files.sweep_temporaries(tmp_path)
        texts = {path.read_text() for path in files.files_below(final)}
        assert len(files.files_below(final)) == 3 and len(texts) == 1, "a mixture of two states"
        assert hidden(tmp_path) == []
        seen.update(texts)

    kills = killed_before_each_call(prepare, lambda: _write_folder(final, "new"), check)
    assert kills > 10
    assert seen == {"old", "new"}


def test_a_kill_while_a_folder_is_removed_leaves_it_whole_or_gone(tmp_path, killed_before_each_call):
    folder = tmp_path / "stage"

    def check():
        assert not folder.exists() or len(files.files_below(folder)) == 3
        files.sweep_temporaries(tmp_path)
        assert hidden(tmp_path) == []

    kills = killed_before_each_call(lambda: _write_folder(folder, "x"), lambda: files.remove_folder(folder), check)
    assert kills >= 5
    assert not folder.exists()


def test_an_exception_inside_the_block_keeps_the_old_folder_and_removes_the_temporary(tmp_path):
    final = tmp_path / "stage"
    _write_folder(final, "old")
    before = folder_records(final)
    with pytest.raises(TypeError, match="must be str"):
        _write_folder(final, 42)
    assert folder_records(final) == before
    assert hidden(tmp_path) == []


def test_a_failed_second_rename_puts_the_old_folder_back(tmp_path, monkeypatch):
    final = tmp_path / "stage"
    _write_folder(final, "old")
    before = folder_records(final)
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "the disk went away")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="went away"):
        _write_folder(final, "new")
    assert folder_records(final) == before
    assert hidden(tmp_path) == []


def test_a_full_disk_passes_through_and_leaves_the_old_file_and_folder(small_disk):
    path, folder = small_disk / "file", small_disk / "folder"
    files.atomic_write_bytes(path, b"old")
    _write_folder(folder, "old")
    before = folder_records(small_disk)
    with pytest.raises(OSError) as of_file:
        files.atomic_write_bytes(path, bytes(2 << 20))
    with pytest.raises(OSError) as of_folder, files.committed_folder(folder) as temporary:
        (temporary / "big").write_bytes(bytes(2 << 20))
    assert of_file.value.errno == of_folder.value.errno == errno.ENOSPC
    assert folder_records(small_disk) == before
    assert hidden(small_disk) == []


def test_a_sweep_leaves_everything_else_alone(tmp_path):
    for name in (".stage.tmp-1", "stage.tmp-1", ".tmp-1", ".hidden", "step-000001"):
        (tmp_path / name).mkdir()
    (tmp_path / ".file.json.tmp-77").write_text("torn")
    files.sweep_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", ".tmp-1", "stage.tmp-1", "step-000001"]
    files.sweep_temporaries(tmp_path / "missing")


def _write_folder(final: Path, text: str) -> None:
    with files.committed_folder(final) as temporary:
        (temporary / "inner").mkdir()
        for name in ("a", "b", "inner/c"):
            (temporary / name).write_text(text)


PARTS = st.lists(st.sampled_from(["a", "..", ".", "b.c", "..d", ""]), max_size=6)


@given(PARTS)
def test_a_name_that_stays_below_is_below_and_no_other_is(parts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "deep", *parts)
        climbed = os.path.normpath(path)
        below = climbed == f"{folder}/deep" or climbed.startswith(f"{folder}/deep/")
        assert files.lies_below(path, Path(folder, "deep")) == below


@given(PARTS.filter(any))
def test_a_manifests_name_is_refused_when_it_could_climb(parts):
    name = "/".join(parts)
    if ".." in parts or name.startswith("/"):
        with pytest.raises(ValueError, match="does not name a file below"):
            files.relative_name(name)
    else:
        assert files.relative_name(name) == name


def test_a_star_in_a_name_fits_files_and_nothing_else_is_special(tmp_path):
    for name in ("a[1]-2", "a[1]-1", "a1-1", "b*", "bc"):
        (tmp_path / name).touch()
    (tmp_path / "a[1]-folder").mkdir()
    assert files.files_named(tmp_path / "a[1]-*") == [tmp_path / "a[1]-1", tmp_path / "a[1]-2"]
    assert files.files_named(tmp_path / "b*") == [tmp_path / "b*"], "what is there is meant"
    assert files.files_named(tmp_path) == [tmp_path]
    assert files.files_named(tmp_path / "gone") == files.files_named(tmp_path / "gone" / "*") == []


@pytest.mark.parametrize("name", ["model", "my model", "my [old] runs *", "a?b", "[x", "ö"])
def test_files_are_found_by_a_pattern_below_the_folder(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "model.safetensors").write_text("weights")
    with files.plain_path(folder) as plain:
        (found,) = glob.glob(f"{plain}/*.safetensors")  # noqa: PTH207 - as vLLM does
        assert Path(found).read_text() == "weights"
    assert (folder / "model.safetensors").exists(), "what is linked stays"
    assert plain == folder or not plain.is_symlink()


def test_numbered_names_keep_their_ending_and_their_folder(tmp_path):
    names = [path.name for path in islice(numbered(tmp_path / "a.b.html", ".html"), 3)]
    assert names == ["a.b.html", "a.b-2.html", "a.b-3.html"]
    assert [path.name for path in islice(numbered(tmp_path / "run.1"), 2)] == ["run.1", "run.1-2"], "a folder has none"
