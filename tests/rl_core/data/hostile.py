"""Draws data as nobody means it: rows, the bytes of a file of rows, images, videos, and what lies under a name."""

import contextlib
import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from tests.rl_core.data.samples import png_bytes, write_video

_SECONDS = 20


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What waits without end fails its test, and does not hold up the suite."""

    def give_up(signum: int, frame: object) -> None:
        raise AssertionError(f"it took more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


GOOD = {"problem": "What is 2 + 2?", "answer": "four", "images": [], "level": 1}
"""A row that must survive whatever other rows its file has."""

_LETTERS = st.characters(codec=None, exclude_categories=())
_TOKENS = (
    *("<image>", "<video>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|vision_start|>"),
    *("{{ content }}", "{% for x in y %}", "\0", "\ufeff", "\u2028", "\ud83d", "\x1b[31m", "[red]", "%s", "\r"),
)
texts = st.one_of(
    st.text(_LETTERS, max_size=20),
    st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=4).map("".join),
    st.builds("".join, st.tuples(st.text(max_size=8), st.sampled_from(_TOKENS), st.text(max_size=8))),
    st.sampled_from(["", " ", "x" * 5_000]),
)
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**30, 2**63, -(2**63), 10**400, 10**4000, 1e308, 5e-324, -0.0, True, False]),
)
_roles = st.sampled_from(["user", "assistant", "system", "human", "gpt", "tool", "", None, 7])
_parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "video", "image_url", "audio", None, []])},
    optional={"text": texts, "image": texts, "video": texts, "image_url": st.one_of(texts, st.just({"url": "a.png"}))},
)
_turns = st.one_of(
    st.fixed_dictionaries({"role": _roles, "content": st.one_of(texts, st.lists(_parts, max_size=3), st.none())}),
    st.fixed_dictionaries({"from": _roles, "value": texts}),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), texts, numbers, st.lists(_turns, max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def paths(folder: Path) -> st.SearchStrategy[str]:
    """What a row may call an image or video: files of every kind, and names of none."""
    there = sorted(lay_special_files(folder))
    return st.one_of(
        st.sampled_from(there),
        st.sampled_from(there).map(lambda name: str(folder / name)),
        st.sampled_from(
            ["/etc/passwd", "/dev/zero", "/proc/self/mem", "..", "../a.png", "", ".", "a" * 300, "a/" * 3000]
        ),
        texts,
    )


def rows(folder: Path) -> st.SearchStrategy[dict[str, Any]]:
    """A good row of which some columns were replaced, added or taken away."""
    media = st.one_of(
        values,
        paths(folder),
        st.lists(paths(folder), max_size=3),
        st.builds(lambda path: {"path": path}, paths(folder)),
    )
    changes = st.fixed_dictionaries(
        {},
        optional={
            "problem": st.one_of(values, st.lists(_turns, max_size=5), texts.map(lambda text: f"<image>{text}")),
            "answer": values,
            "images": media,
            "videos": media,
            "level": values,
            "note": values,
        },
    )
    extra = st.dictionaries(texts, values, max_size=1)
    gone = st.sets(st.sampled_from(sorted(GOOD)), max_size=1)
    return st.builds(
        lambda change, more, without: {k: v for k, v in (GOOD | change | more).items() if k not in without},
        changes,
        extra,
        gone,
    )


def lines(folder: Path) -> st.SearchStrategy[bytes]:
    """A line of JSONL: mostly JSON, sometimes damaged, of another encoding, or anything at all. Never a line end."""

    def spelled(row: dict[str, Any], *, plain: bool) -> bytes:
        return json.dumps(row, ensure_ascii=not plain).encode(errors="surrogatepass")

    written = st.builds(spelled, rows(folder), plain=st.booleans())
    cut = st.builds(lambda line, share: line[: int(len(line) * share)], written, st.floats(0, 1))
    twice = written.map(lambda line: line[:-1] + b', "answer": "five", "answer": "six"}')
    latin = rows(folder).map(lambda row: json.dumps(row, ensure_ascii=False).encode("latin-1", errors="replace"))
    deep = st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b"[" * 120 + b"]" * 120])
    odd = st.one_of(st.binary(max_size=30), values.map(lambda value: json.dumps(value).encode()), deep)
    one = st.one_of(written, written, cut, twice, latin, odd)
    return one.map(lambda line: line.replace(b"\n", b" ").replace(b"\r", b" "))


def _pretty(data: bytes) -> bytes:
    return b"\n".join(json.dumps(GOOD, indent=2).encode() for _ in data.splitlines() or [b""])


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "with a mark": lambda data: b"\xef\xbb\xbf" + data,
    "with a mark twice": lambda data: b"\xef\xbb\xbf\xef\xbb\xbf" + data,
    "lines of Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "UTF-16": lambda data: data.decode(errors="replace").encode("utf-16"),
    "gzip": gzip.compress,
    "an array": lambda data: b"[" + b",\n".join(data.splitlines()) + b"]",
    "pretty": _pretty,
    "nothing": lambda data: b"",
    "blank": lambda data: b" \n\n\t\n",
    "zeros": lambda data: bytes(len(data)),
    "a page": lambda data: b"<html>" + data,
    "cut": lambda data: data[: len(data) // 2],
}
"""How the lines of a file reach the disk, by what was done to them."""


@cache
def _encoded_images() -> tuple[bytes, ...]:
    """Small images of many kinds."""
    noise = np.random.default_rng(0)
    found = []
    for mode, kinds in {
        "RGB": ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "TGA"),
        "RGBA": ("PNG", "WEBP", "TIFF"),
        "L": ("PNG", "JPEG", "TIFF"),
        "P": ("PNG", "GIF"),
        "1": ("PNG", "TIFF"),
        "CMYK": ("JPEG", "TIFF"),
        "I": ("TIFF",),
        "I;16": ("PNG", "TIFF"),
        "F": ("TIFF",),
    }.items():
        for kind in kinds:
            pixels = noise.integers(0, 256, (24, 32, 3), np.uint8)
            image = (
                Image.fromarray(pixels).convert("L").convert(mode)
                if mode == "I;16"
                else Image.fromarray(pixels).convert(mode)
            )
            buffer = BytesIO()
            image.save(buffer, format=kind)
            found.append(buffer.getvalue())
    return tuple(found)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Bytes of which some were replaced, and the end perhaps lost."""
    change = st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=8))

    def apply(changes: list[tuple[int, bytes]], kept: float) -> bytes:
        data = bytearray(whole)
        for place, replaced in changes:
            data[place : place + len(replaced)] = replaced
        return bytes(data[: max(1, int(len(data) * kept))])

    return st.builds(apply, st.lists(change, max_size=5), st.one_of(st.just(1.0), st.floats(0, 1)))


images = st.one_of(
    st.sampled_from(range(len(_encoded_images()))).flatmap(lambda number: damaged(_encoded_images()[number])),
    st.builds(
        lambda width, height: png_bytes(size=(width, height)),
        st.sampled_from([1, 2, 28, 900]),
        st.sampled_from([1, 28]),
    ),
    st.binary(max_size=40),
)


@cache
def _encoded_video(folder: Path) -> bytes:
    path = folder / "whole.avi"
    write_video(path, np.zeros((6, 32, 32, 3), np.uint8), fps=3)
    return path.read_bytes()


def videos(folder: Path) -> st.SearchStrategy[bytes]:
    """A small video, damaged, or a list of other files in a video's place."""
    lists = st.sampled_from([b"ffconcat version 1.0\nfile pipe.png\n", b"#EXTM3U\n#EXTINF:9,\npipe.png\n"])
    return st.one_of(damaged(_encoded_video(folder)), lists, st.binary(max_size=40))


@cache
def lay_special_files(folder: Path) -> tuple[str, ...]:
    """Something of every kind below a folder. Returns the names."""
    (folder / "a.png").write_bytes(png_bytes())
    (folder / "cut.png").write_bytes(png_bytes()[:40])
    (folder / "empty.png").touch()
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "device.png").symlink_to("/dev/zero")
    (folder / "nowhere.png").symlink_to(folder / "gone")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    (folder / "out.png").symlink_to("/etc/hostname")
    with (folder / "hole.png").open("wb") as file:
        file.truncate(50 << 30)
    return tuple(path.name for path in folder.iterdir())
