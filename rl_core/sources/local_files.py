"""Finds the reader that a path of the `local` source needs."""

from collections.abc import Sequence
from pathlib import Path

from rl_core.files import check_regular, files_named, is_regular
from rl_core.sources.class_folders import ClassFolderReader, is_class_folder
from rl_core.sources.columns import Columns
from rl_core.sources.csv_rows import CsvReader
from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.geometry3k import ITEM_FILE, Geometry3kReader
from rl_core.sources.json_rows import JsonlReader, JsonReader, check_json_lines, is_json_array
from rl_core.sources.parquet_rows import ParquetReader
from rl_core.sources.shards import check_shards
from rl_core.sources.tables import FileTable

LocalReader = FileTable | Geometry3kReader | ClassFolderReader


def find_reader(
    place: str, *, kind: str, columns: Columns, media_dir: str | None = None, limit: int | None = None
) -> LocalReader:
    """The reader for a path, which has not looked at the configured columns yet.

    Args:
        place: File, folder or pattern.
        kind: The `format` of a local source; `auto` goes by what the path holds.

    Raises:
        ValueError: The path does not exist, or has no known format or more than one.
    """
    path = Path(place)
    if not files_named(path):
        raise ValueError(f"data source {path}: no such file or folder")
    kind = _find_kind(path) if kind == "auto" else kind
    if kind == "geometry3k":
        return _geometry3k(path, limit)
    if kind == "imagefolder":
        return _class_folders(path, limit)
    files = _files_of(path, f".{kind}")
    return _table(kind, files)(place=place, files=files, columns=columns, media_dir=media_dir, limit=limit)


def _geometry3k(path: Path, limit: int | None) -> Geometry3kReader:
    reader = Geometry3kReader(folder=path, limit=limit)
    if not reader.files:
        raise ValueError(f"data source {path}: no item folder with a {ITEM_FILE} in it")
    return reader


def _class_folders(path: Path, limit: int | None) -> ClassFolderReader:
    reader = ClassFolderReader(folder=path, limit=limit)
    if not path.is_dir() or not reader.files:
        raise ValueError(f"data source {path}: no folder with images or videos in it")
    return reader


def _table(kind: str, files: Sequence[Path]) -> type[FileTable]:
    if kind == "json":
        return JsonReader if all(map(is_json_array, files)) else JsonlReader
    return {"parquet": ParquetReader, "csv": CsvReader, "jsonl": JsonlReader}[kind]


def _find_kind(path: Path) -> str:
    if not path.is_dir():
        kind = path.suffix.removeprefix(".")
        if kind not in FILE_KINDS:
            endings = ", ".join(f".{kind}" for kind in FILE_KINDS)
            raise ValueError(f"data source {path}: the file must end in one of {endings}, or `format` must name one")
        return kind
    patterns = {"parquet": "*.parquet", "jsonl": "*.jsonl", "geometry3k": f"*/{ITEM_FILE}"}
    found = [kind for kind, pattern in patterns.items() if next(path.glob(pattern), None)]
    if not found and is_regular(path / "metadata.csv"):  # as `datasets` calls the table of a folder of images
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
    """Whether a folder holds folders of classes, and not images with a table of rows."""
    tables = [child for child in path.iterdir() if child.suffix in (".json", ".csv")]
    return not tables and sum(child.is_dir() and is_class_folder(child) for child in path.iterdir()) > 1


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
