"""What is no regular file is named wherever data may lead to it: opening it would wait for ever."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rl_core.data.pixels import read_image
from rl_core.data.videos import read_video
from rl_core.sources.rows import BadRow
from tests.rl_core.data.hostile import bounded
from tests.rl_core.data.samples import local, write_video


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    with bounded():
        yield


KINDS: dict[str, Callable[[Path], None]] = {
    "a named pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


@pytest.fixture(params=KINDS)
def lay(request, tmp_path) -> Callable[[str], Path]:
    """`lay(name)`: something of another kind under this name."""

    def make(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[request.param](path)
        return path

    make.kind = request.param
    return make


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_special_file_as_the_only_shard_is_refused(lay, ending):
    path = lay(f"data/rows.{ending}")
    for source in (local(path, format=ending), local(path.parent), local(path.parent / "r*", format=ending)):
        if lay.kind == "a folder" and source.path == str(path):
            continue  # a folder of shards may be called so
        with pytest.raises(ValueError, match=rf"data source .*rows\.{ending} is {lay.kind}, not a file|no such file"):
            source.open()
        with pytest.raises(ValueError, match="data source"):
            source.fingerprint()


def test_a_special_file_as_an_image_costs_its_row_and_no_fingerprint(lay, write_jsonl):
    path = lay("a.png")
    source = local(write_jsonl([{"problem": "<image>", "images": ["a.png"], "answer": "1"}]))
    assert source.fingerprint() == source.fingerprint()
    with pytest.raises(ValueError, match=f"the image file {path} is {lay.kind}, not a file"):
        read_image(path)


def test_a_special_file_as_a_video_costs_its_row(lay):
    path = lay("a.mp4")
    with pytest.raises(ValueError, match=f"the video file {path} is {lay.kind}, not a file"):
        read_video(path, fps=1.0, max_frames=2)


@pytest.mark.parametrize("name", ["x" * 5000 + ".png", "x/" * 3000 + "a.png", "\0.png", "a\0"])
def test_a_name_that_no_system_takes_costs_its_row_and_no_fingerprint(write_jsonl, name):
    source = local(write_jsonl([{"problem": "<image>", "images": [name], "answer": "1"}]))
    assert source.fingerprint()
    (row,) = source.open()
    if isinstance(row, BadRow):
        assert row.column == "images" and row.reason
        return
    with pytest.raises(ValueError, match=r"the image file .* cannot be"):
        read_image(row.images[0])


def test_an_image_file_of_a_size_that_no_image_has_is_not_read(tmp_path):
    path = tmp_path / "a.png"
    with path.open("wb") as file:
        file.truncate(200 << 30)  # a hole: it takes no room on the disk
    with pytest.raises(
        ValueError, match=f"the image file {path} has 214748364800 bytes, more than the limit of 1073741824"
    ):
        read_image(path)


LISTS = {
    "list.mp4": "ffconcat version 1.0\nfile {name}\n",
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:9,\n{name}\n#EXT-X-ENDLIST\n",
    "list.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_video_that_names_other_files_is_none(tmp_path, name):
    shown = tmp_path / "shown.avi"
    write_video(shown, np.zeros((8, 32, 32, 3), np.uint8), fps=4)
    assert read_video(shown, fps=1.0, max_frames=2)
    (tmp_path / name).write_text(LISTS[name].format(name=shown.name))
    with pytest.raises(ValueError, match="the video is of no known format"):
        read_video(tmp_path / name, fps=1.0, max_frames=2)
