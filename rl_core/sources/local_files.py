"""The `local` source: which reader a path needs, and what its files show at a glance."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from rl_core.digests import digest_of, file_digests
from rl_core.files import check_regular, files_named, is_regular
from rl_core.sources.class_folders import ClassFolderReader, is_class_folder
from rl_core.sources.columns import check_columns
from rl_core.sources.file_kinds import check_json_lines
from rl_core.sources.geometry3k import ITEM_FILE, Geometry3kReader
from rl_core.sources.local import FILE_KINDS, LocalSource
from rl_core.sources.media import media_digests
from rl_core.sources.shards import check_shards
from rl_core.sources.source import Glance
from rl_core.sources.tables import JsonlReader, ParquetReader, TableReader
from rl_core.sources.whole_tables import CsvReader, JsonReader, is_json_array

MOST_BYTES: Final = 1 << 26
"""Bytes of JSONL files that a glance reads to count their lines; the rest of larger files is estimated."""

_ROWS_LOOKED_AT = 256
_CHUNK = 1 << 20

LocalReader = TableReader | Geometry3kReader | ClassFolderReader


def open_local(source: LocalSource) -> LocalReader:
    """The reader for a path, with the columns checked.

    Raises:
        ValueError: The path does not exist, has no known format or more than one, or no row has a configured column.
    """
    reader = find_reader(source)
    if isinstance(reader, TableReader):
        check_rows(reader)
        check_columns(reader.columns(), source.columns, place=source.path)
    return reader


def local_fingerprint(source: LocalSource) -> str:
    """Identity of every data and media file. Raises ValueError where the source cannot be opened."""
    reader = open_local(source)
    content = {
        "name": reader.name,
        "columns": source.columns.model_dump(mode="json"),
        "limit": source.limit,
        "files": file_digests(reader.files),
        "media": media_digests(reader),
        **({"names": reader.names} if isinstance(reader, ClassFolderReader) else {}),
    }
    return digest_of(content)


def local_glance(source: LocalSource) -> Glance:
    """What the files show at a glance; the work is bounded. Raises ValueError or OSError where nothing can be read."""
    reader = find_reader(source)
    if isinstance(reader, TableReader):
        return _table_glance(reader, source)
    return Glance(rows=reader.row_count, names=frozenset([reader.name]))


def check_rows(reader: TableReader) -> None:
    """Raises ValueError for a source without any row, or without any row that can be read; the message names the first
    row."""
    names, first = reader.columns(), next(iter(reader.raw_rows()), None)
    if first is None:
        raise ValueError(f"data source {reader.source.path}: it holds no row")
    if not names:
        why = f"{first.origin}: {first.values}"
        raise ValueError(f"data source {reader.source.path}: none of its rows can be read; {why}")


def find_reader(source: LocalSource) -> LocalReader:
    """The reader for a path, chosen by `source.format` or by what the path holds.

    Raises:
        ValueError: The path does not exist, or has no known format or more than one.
    """
    path = Path(source.path)
    if not files_named(path):
        raise ValueError(f"data source {path}: no such file or folder")
    match _find_format(path) if source.format == "auto" else source.format:
        case "geometry3k":
            return _geometry3k(path, source)
        case "imagefolder":
            return _class_folders(path, source)
        case "parquet":
            return ParquetReader(files=_files_of(path, ".parquet"), source=source)
        case "csv":
            return CsvReader(files=_files_of(path, ".csv"), source=source)
        case "json" if all(map(is_json_array, files := _files_of(path, ".json"))):
            return JsonReader(files=files, source=source)
        case kind:
            return JsonlReader(files=_files_of(path, f".{kind}"), source=source)


def _geometry3k(path: Path, source: LocalSource) -> Geometry3kReader:
    reader = Geometry3kReader(folder=path, limit=source.limit)
    if not reader.files:
        raise ValueError(f"data source {path}: no item folder with a {ITEM_FILE} in it")
    return reader


def _class_folders(path: Path, source: LocalSource) -> ClassFolderReader:
    reader = ClassFolderReader(folder=path, limit=source.limit)
    if not path.is_dir() or not reader.files:
        raise ValueError(f"data source {path}: no folder with images or videos in it")
    return reader


def _find_format(path: Path) -> str:
    if not path.is_dir():
        kind = path.suffix.removeprefix(".")
        if kind not in FILE_KINDS:
            endings = ", ".join(f".{kind}" for kind in FILE_KINDS)
            raise ValueError(f"data source {path}: the file must end in one of {endings}, or `format` must name one")
        return kind
    patterns = {"parquet": "*.parquet", "jsonl": "*.jsonl", "geometry3k": f"*/{ITEM_FILE}"}
    found = [kind for kind, pattern in patterns.items() if next(path.glob(pattern), None)]
    if not found and is_regular(path / "metadata.csv"):  # as `datasets` calls the rows beside a folder of images
        return "csv"
    if not found and _has_classes(path):
        return "imagefolder"
    if not found:
        raise ValueError(
            f"data source {path}: the folder has no .parquet or .jsonl file, no item folder, and no folder of images "
            "or videos; `format` may name json or csv"
        )
    if len(found) > 1:
        raise ValueError(f"data source {path}: the folder holds {' and '.join(found)}; choose with `format`")
    return found[0]


def _has_classes(path: Path) -> bool:
    """Whether a folder holds folders of classes, and not images beside a file of rows."""
    beside = [child for child in path.iterdir() if child.suffix in (".json", ".csv")]
    return not beside and sum(child.is_dir() and is_class_folder(child) for child in path.iterdir()) > 1


def _files_of(path: Path, ending: str) -> list[Path]:
    """The files with this ending, each checked. Raises ValueError where there are none, a shard is missing, or a file
    is of another kind. A file that is named by itself may be one of several shards."""
    files = sorted(path.glob(f"*{ending}")) if path.is_dir() else files_named(path)
    if not files:
        raise ValueError(f"data source {path}: no {ending} file in the folder")
    try:
        if files != [path]:
            check_shards(files)
        for file in files:
            check_regular(file)
            if ending == ".jsonl" or (ending == ".json" and not is_json_array(file)):
                check_json_lines(file)
    except ValueError as error:
        raise ValueError(f"data source {path}: {error}") from None
    return files


def _table_glance(reader: TableReader, source: LocalSource) -> Glance:
    if isinstance(reader, JsonlReader):
        columns, is_whole = _first_columns(reader)
        rows, is_exact = _count_lines(reader)
    else:
        columns, is_whole = reader.columns(), True
        rows, is_exact = reader.count(), True
    if is_whole:
        check_rows(reader)
        check_columns(columns, source.columns, place=source.path)
    limited = rows if source.limit is None else min(rows, source.limit)
    return Glance(
        rows=limited,
        is_exact=is_exact or limited == source.limit,
        names=None if source.names_its_rows else frozenset([reader.name]),
        columns=frozenset(columns) - source.columns.meanings if is_whole else None,
    )


def _first_columns(reader: JsonlReader) -> tuple[set[str], bool]:
    """The columns of the first rows, and whether these rows are all rows."""
    rows = list(islice(reader.raw_rows(), _ROWS_LOOKED_AT + 1))
    names = {name for row in rows if isinstance(row.values, dict) for name in row.values}
    return names, len(rows) <= _ROWS_LOOKED_AT


def _count_lines(reader: JsonlReader) -> tuple[int, bool]:
    """Number of rows in the files, and whether all of them were counted."""
    sizes = [path.stat().st_size for path in reader.files]
    if sum(sizes) <= MOST_BYTES:
        return reader.count(), True
    lines = read = 0
    for chunk in _chunks(reader.files, MOST_BYTES):
        lines += chunk.count(b"\n")
        read += len(chunk)
    return round(lines / read * sum(sizes)), False


def _chunks(files: list[Path], most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    for path in files:
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
