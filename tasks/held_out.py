"""Held-out rows for a dataset that comes without any: a share of its rows, set apart once and for all."""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.config.data import Columns, LocalSource, Source
from rl_core.data.local import find_reader
from rl_core.data.rows import ImageInput, Row, Turn
from rl_core.data.shards import shards_pattern
from rl_core.data.sources import iter_rows
from rl_core.data.tables import json_column
from rl_core.files import atomic_write_bytes, files_named, hash_file, is_regular
from rl_core.randomness import keyed_seed

_HELD_OUT_NAMES = ("validation", "valid", "val", "test", "dev")
_SHARE = 0.1
_MOST = 500

_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_MEDIA = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
_USUAL = {"problem": _TURNS, "images": _MEDIA, "videos": _MEDIA}


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Training and held-out rows, and in words where they come from."""

    train: LocalSource
    validation: LocalSource
    origin: str


def find_split(path: Path) -> tuple[Path, Path] | None:
    """Training and held-out data that lie side by side by name: children of a folder, or `path` and its sibling. The
    shards of a split are one child, a path with a `*` in their place.

    Raises:
        ValueError: two children claim one of the names; names both.
    """
    given = set(files_named(path))
    folder = path if path.is_dir() else path.parent
    named = _data_by_name(folder)
    held_out = next((named[name] for name in _HELD_OUT_NAMES if name in named), None)
    train = named.get("train") if path.is_dir() else [path]
    if train is None or held_out is None or any(given & set(files_named(child)) for child in held_out):
        return None
    return _only(train), _only(held_out)


def _data_by_name(folder: Path) -> dict[str, list[Path]]:
    """Readable children by the first word of their names, shards together."""
    named: dict[str, list[Path]] = {}
    for child in sorted(folder.iterdir()):
        claims = named.setdefault(re.split(r"[-_.]", child.name.lower(), maxsplit=1)[0], [])
        pattern = shards_pattern(child) if child.is_file() else None
        claim = pattern if pattern is not None and len(files_named(pattern)) > 1 else child
        if claim not in claims and _is_data(child):
            claims.append(claim)
    return {name: claims for name, claims in named.items() if claims}


def _is_data(child: Path) -> bool:
    """Whether a local source could read it: pictures and programs beside the rows are none."""
    try:
        find_reader(LocalSource(type="local", path=str(child)))
    except ValueError:
        return False
    return True


def _only(claims: Sequence[Path]) -> Path:
    if len(claims) > 1:
        raise ValueError(
            f"{' and '.join(map(str, claims))} have the same name at their beginning; say which of them is meant: "
            "sightline init DATA --validation HELD_OUT"
        )
    return claims[0]


def set_rows_apart(source: Source, folder: Path) -> Split:
    """Write train.parquet and validation.parquet into `folder`: about a tenth of the rows, at most 500, is held out.
    Every column goes with its row.

    Rows that share an image (or the question, where they have none) stay on one side, so that nothing held out is seen
    in training. Which side that is depends on their content alone.

    Raises:
        ValueError: there are no two rows that could be on different sides.
    """
    rows = [row for row in iter_rows(source) if isinstance(row, Row)]
    clusters = sorted(_clusters(rows), key=lambda cluster: keyed_seed(0, "held-out", cluster[0].question, len(cluster)))
    wanted = max(1, min(_MOST, int(len(rows) * _SHARE)))
    validation: list[Row] = []
    while clusters and len(validation) < wanted:
        validation += clusters.pop()
    if not clusters:
        raise ValueError(f"{len(rows)} readable row(s) cannot be split into training and held-out rows")
    train = [row for cluster in clusters for row in cluster]
    return Split(
        train=_write(train, folder / "train.parquet"),
        validation=_write(validation, folder / "validation.parquet"),
        origin=f"{len(validation)} of {len(rows)} rows were set apart in {folder}",
    )


def _clusters(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that are linked by shared content, together."""
    cluster_of: dict[str, list[Row]] = {}
    for row in rows:
        contents = _contents(row)
        joined = [row]
        for cluster in {id(found): found for key in contents if (found := cluster_of.get(key))}.values():
            joined += cluster
        for key in {key for member in joined for key in _contents(member)}:
            cluster_of[key] = joined
    return list({id(cluster): cluster for cluster in cluster_of.values()}.values())


@cache
def _hash_of_file(path: Path) -> str:
    return hash_file(path)


def _contents(row: Row) -> list[str]:
    """What a row must not share with one on the other side."""
    return [_content(medium) for medium in (*row.images, *row.videos)] or [row.question]


def _content(medium: ImageInput) -> str:
    if isinstance(medium, Path):
        return _hash_of_file(medium) if is_regular(medium) else str(medium)
    return hashlib.sha256(encoded(medium)).hexdigest()


def encoded(image: ImageInput) -> bytes:
    """The image's or video's bytes; a decoded image becomes PNG."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, Path):
        return image.read_bytes()
    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _write(rows: Sequence[Row], path: Path) -> LocalSource:
    others = list(dict.fromkeys(name for row in rows for name in row.extra))
    names = {usual: _free_name(usual, others) for usual in (*_USUAL, "answer")}
    fields = [(names[usual], kind) for usual, kind in _USUAL.items()]
    schema = pa.schema([*fields, *map(json_column, [names["answer"], *others])])
    table = pa.Table.from_pylist([_record(row, names) for row in rows], schema=schema)
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    atomic_write_bytes(path, buffer.getvalue().to_pybytes())
    columns = Columns(
        prompt_key=names["problem"],
        image_key=names["images"],
        video_key=names["videos"],
        answer_key=names["answer"],
    )
    return LocalSource(type="local", path=str(path), columns=columns, media_dir=_media_folder(rows))


def _free_name(name: str, taken: Collection[str]) -> str:
    """`name`, made longer until no other column has it."""
    while name in taken:
        name += "_"
    return name


def _media_folder(rows: Sequence[Row]) -> str | None:
    """The folder that holds every file the rows name; paths may not lead out of it."""
    folders = {str(m.absolute().parent) for row in rows for m in (*row.images, *row.videos) if isinstance(m, Path)}
    return os.path.commonpath(folders) if folders else None


def _record(row: Row, names: Mapping[str, str]) -> dict[str, object]:
    turns = [*row.history, Turn(role="user", content=row.question)]
    return {
        names["problem"]: [turn._asdict() for turn in turns],
        names["images"]: [_stored(image) for image in row.images],
        names["videos"]: [_stored(video) for video in row.videos],
        names["answer"]: json.dumps(row.answer, ensure_ascii=False),
        **{name: json.dumps(value, ensure_ascii=False) for name, value in row.extra.items()},
    }


def _stored(medium: ImageInput) -> dict[str, object]:
    if isinstance(medium, Path):
        return {"bytes": None, "path": str(medium.absolute())}
    return {"bytes": encoded(medium), "path": None}
