"""Whatever the data is, it ends with a sentence that names what and where, or it is read; and it ends soon.

`make test` draws the same examples each time, `make test-slow` new ones.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.config.data import CurriculumConfig
from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStoreWriter
from rl_core.data.pixels import prepare_image
from rl_core.data.preparation import prepare_dataset, with_numbers
from rl_core.data.prepared import PreparedDataset, arrange, rows_table
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.data.videos import read_video
from rl_core.progress import SilentProgress
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data import hostile
from tests.rl_core.data.hostile import bounded
from tests.rl_core.data.samples import counting, data_config, local

_LIMITS = Limits(max_prompt_length=512, min_pixels=784, max_pixels=10_000)

drawn = settings(suppress_health_check=list(HealthCheck))
"""As many examples as the profile says."""
drawn_rarely = settings(drawn, max_examples=max(1, settings.default.max_examples // 10))
"""For what takes longer."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with something of every kind in it."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.lay_special_files(folder)
    return folder


@pytest.fixture(scope="module")
def renderer(tiny_folder) -> ChatRenderer:
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
def test_the_lines_of_a_file(folder, data, wrapping, ending):
    written = b"\n".join(data.draw(st.lists(hostile.lines(folder), max_size=4))) + b"\n"
    path = folder / f"rows.{ending}"
    path.write_bytes(hostile.WRAPPINGS[wrapping](written))
    with bounded():
        read(local(path), named=path.name)


@drawn
@given(data=st.data())
def test_a_bad_row_costs_itself(folder, renderer, data):
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
def test_the_values_of_a_table(folder, renderer, data):
    """Parquet holds other values than JSON: bytes, and every row of a column in one type."""
    row = data.draw(hostile.rows(folder))
    row["images"] = data.draw(st.one_of(st.just(row.get("images")), st.lists(hostile.images, max_size=2)))
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
def test_the_bytes_of_a_table(folder, data):
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([hostile.GOOD] * 20), buffer)
    path = folder / "damaged.parquet"
    path.write_bytes(data.draw(hostile.damaged(buffer.getvalue().to_pybytes())))
    with bounded():
        read(local(path), named=path.name)


@drawn
@given(
    names=st.lists(st.one_of(st.sampled_from(["problem", "answer", "images", "level", ""]), hostile.texts), max_size=5),
    cells=st.lists(st.lists(hostile.texts, max_size=5), max_size=3),
    quote=st.sampled_from(['"', "", "'"]),
    separator=st.sampled_from([",", ";", "\t"]),
)
def test_the_lines_of_a_csv(folder, names, cells, quote, separator):
    lines = [separator.join(f"{quote}{cell}{quote}" for cell in line) for line in (names, *cells)]
    path = folder / "rows.csv"
    path.write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    with bounded():
        read(local(path), named=path.name)


@drawn
@given(encoded=hostile.images)
def test_an_image(encoded):
    with bounded():
        try:
            stored = prepare_image(encoded, min_pixels=784, max_pixels=10_000)
        except ValueError as error:
            sentence(error)
        else:
            assert stored.width >= 1 and stored.height >= 1


@drawn
@given(data=st.data())
def test_a_video(folder, data):
    encoded = data.draw(hostile.videos(folder))
    with bounded():
        try:
            frames = read_video(encoded, fps=2.0, max_frames=4)
        except ValueError as error:
            sentence(error)
        else:
            assert 2 <= len(frames.images) <= 4


@drawn
@given(
    names=st.lists(
        st.builds(
            "{}-{:05}-of-{:05}.jsonl".format, st.sampled_from(["train", "test"]), st.integers(0, 4), st.integers(0, 4)
        ),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    pattern=st.sampled_from(["", "*.jsonl", "train-*", "train-*-of-00003.jsonl", "[t]*"]),
)
def test_the_shards_of_a_folder(names, pattern):
    with TemporaryDirectory() as scratch, bounded():
        for name in names:
            (Path(scratch) / name).write_text(json.dumps(hostile.GOOD) + "\n")
        rows = read(local(Path(scratch) / pattern, format="jsonl"), named=scratch)
    if rows:
        chosen = [name for name in names if not pattern.startswith("train") or name.startswith("train")]
        assert len(rows) in {int(name[-11:-6]) for name in chosen}, "nothing is missing without a word"


@drawn_rarely
@given(data=st.data(), max_bad_share=st.sampled_from([0.0, 1.0]), overlong=st.sampled_from(["filter", "error"]))
def test_a_whole_preparation(folder, tiny_folder, data, max_bad_share, overlong):
    good = json.dumps(hostile.GOOD).encode()
    path = folder / "train.jsonl"
    path.write_bytes(b"\n".join([good, *data.draw(st.lists(hostile.lines(folder), max_size=3))]) + b"\n")
    config = data_config(
        train=local(path),
        validation=counting(2, scene_seed=5),
        max_prompt_length=512,
        max_bad_share=max_bad_share,
        overlong=overlong,
        curriculum=CurriculumConfig(column="level"),
    )
    with TemporaryDirectory() as scratch, bounded():
        try:
            manifest = prepare_dataset(
                config, model_folder=tiny_folder("qwen2_5_vl"), out=Path(scratch) / "out", progress=SilentProgress()
            )
        except ValueError as error:
            message = sentence(error)
        else:
            message = ""
        if message:
            assert "train" in message
            assert max_bad_share == 0.0 or overlong == "error", "one good row is there"
            return
        named = (Path(scratch) / "out" / "rejected.jsonl").read_text().splitlines()
        dataset = PreparedDataset.open(Path(scratch) / "out", "train")
        train = manifest.splits["train"]
        assert train.read == train.rows + len(named)
        assert len(dataset) == train.rows >= 1
        assert len(arrange(dataset, config).ranks) == train.rows
