"""Whatever the data is, it ends with a sentence that names what and where, or it is read; and it ends soon.

`make test` draws the same examples each time, `make test-slow` new ones.
"""

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStoreWriter
from rl_core.data.preparation import with_numbers
from rl_core.data.prepared import rows_table
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data import hostile
from tests.rl_core.data.samples import local

_SECONDS = 20
_LIMITS = Limits(max_prompt_length=512, min_pixels=784, max_pixels=10_000)

drawn = settings(suppress_health_check=list(HealthCheck))
"""As many examples as the profile says."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What waits without end fails its example, and does not hold up the suite."""

    def give_up(signum: int, frame: object) -> None:
        raise AssertionError(f"it took more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something of every kind in it."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.lay_special_files(folder)
    return folder


@pytest.fixture(scope="module")
def renderer(tiny_folder: Any) -> ChatRenderer:
    return ChatRenderer(tiny_folder("qwen2_5_vl"), prompt_template=None, system_prompt=None)


def read(source: LocalSource, *, named: str) -> list[Row | BadRow]:
    """The rows of a source; none where it is refused, which says its name."""
    try:
        reader = source.open()
        rows = list(reader)
        assert source.fingerprint() == source.fingerprint()
    except ValueError as error:
        message = sentence(error)
    else:
        message = ""
    if message:
        assert named in message
        return []
    assert [row.index for row in rows] == list(range(reader.row_count))
    for row in rows:
        if isinstance(row, BadRow):
            check_bad(row)
    return rows


def sentence(error: BaseException) -> str:
    text = str(error)
    assert text.strip() and len(text) < 10_000
    text.encode()  # it can be printed
    return text


def check_bad(row: BadRow) -> None:
    assert row.reason.strip() and len(row.reason) < 1000 and row.origin
    json.dumps(row.reason, ensure_ascii=False).encode()
    str(row).encode()


def prepared(rows: list[Row | BadRow], renderer: ChatRenderer) -> list[PreparedRow | RejectedRow]:
    """Every row as a prompt or a rejection, through the file that prompts are kept in."""
    with TemporaryDirectory() as scratch, ImageStoreWriter(Path(scratch) / "images.arrow") as store:
        items = list(prepare_rows(with_numbers(rows, "level"), renderer, limits=_LIMITS, images=store))
    assert len(items) == len(rows)
    kept = [item for item in items if isinstance(item, PreparedRow)]
    assert rows_table(kept).num_rows == len(kept)
    for item in items:
        if isinstance(item, RejectedRow):
            check_bad(item.row)
    return items


@drawn
@given(data=st.data(), wrapping=st.sampled_from(sorted(hostile.WRAPPINGS)), ending=st.sampled_from(["jsonl", "json"]))
def test_the_lines_of_a_file(folder: Path, data: st.DataObject, wrapping: str, ending: str) -> None:
    written = b"\n".join(data.draw(st.lists(hostile.lines(folder), max_size=4))) + b"\n"
    path = folder / f"rows.{ending}"
    path.write_bytes(hostile.WRAPPINGS[wrapping](written))
    with bounded():
        read(local(path), named=path.name)


@drawn
@given(data=st.data())
def test_a_bad_row_costs_itself(folder: Path, renderer: ChatRenderer, data: st.DataObject) -> None:
    """Two good rows survive whatever stands between them."""
    good = json.dumps(hostile.GOOD).encode()
    before, between = (data.draw(st.lists(hostile.lines(folder), max_size=2)) for _ in range(2))
    path = folder / "mixed.jsonl"
    path.write_bytes(b"\n".join([good, *before, *between, good]) + b"\n")
    with bounded():
        rows = read(local(path), named=path.name)
        items = prepared(rows, renderer)
    survivors = [item for item in (items[0], items[-1]) if isinstance(item, PreparedRow)]
    assert [item.prompt.question for item in survivors] == [hostile.GOOD["problem"]] * 2


@drawn
@given(data=st.data())
def test_the_values_of_a_table(folder: Path, renderer: ChatRenderer, data: st.DataObject) -> None:
    """Parquet holds other values than JSON: bytes, and every row of a column in one type."""
    row = data.draw(hostile.rows(folder))
    row["images"] = data.draw(st.one_of(st.just(row.get("images")), st.lists(st.binary(max_size=40), max_size=2)))
    path = folder / "rows.parquet"
    try:
        table = pa.Table.from_pylist([row, row])
        pq.write_table(table, path)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError, UnicodeError):
        return  # Parquet has no form for it
    with bounded():
        prepared(read(local(path), named=path.name), renderer)


@drawn
@given(data=st.data())
def test_the_bytes_of_a_table(folder: Path, data: st.DataObject) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([hostile.GOOD] * 20), buffer)
    path = folder / "damaged.parquet"
    path.write_bytes(data.draw(hostile.damaged(buffer.getvalue().to_pybytes())))
    with bounded():
        read(local(path), named=path.name)
