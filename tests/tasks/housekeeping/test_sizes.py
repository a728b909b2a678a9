"""What is announced to become free is what becomes free, however the files are linked."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.housekeeping.removal import freed_bytes, size_on_disk

files = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20_000), st.sets(st.integers(0, 3))), max_size=6)


@given(files, st.sets(st.integers(0, 3)))
def test_freed_bytes_are_the_difference_of_the_sizes(made: list[tuple[int, int, set[int]]], removed: set[int]) -> None:
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, f"run-{number}") for number in range(4)]
        for folder in folders:
            folder.mkdir()
        for number, (owner, size, takers) in enumerate(made):
            file = folders[owner] / f"{number}"
            file.write_bytes(b"x" * size)
            for taker in takers - {owner}:
                os.link(file, folders[taker] / f"{number}")
        before = size_on_disk(folders)
        promised = freed_bytes(folders[number] for number in removed)
        for number in removed:
            shutil.rmtree(folders[number])
        assert size_on_disk(folders) == before - promised
