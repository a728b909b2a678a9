"""The `local` source: files and folders of this machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.files import check_regular, files_named, is_regular
from rl_core.sources.class_folders import ClassFolderReader, is_class_folder
from rl_core.sources.columns import Columns
from rl_core.sources.csv_rows import CsvReader, TsvReader
from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.geometry3k import ITEM_FILE, Geometry3kReader
from rl_core.sources.json_rows import JsonlReader, JsonReader, check_json_lines, is_one_json_value
from rl_core.sources.rows import media_digests
from rl_core.sources.shards import check_shards
from rl_core.sources.source import Glance, NamedPath, SourceFiles
from rl_core.sources.tables import FileTable, FolderReader, TableSource

LocalReader = FileTable | FolderReader

_FOLDERS: dict[str, tuple[type[FolderReader], str]] = {
    "geometry3k": (Geometry3kReader, f"item folder with a {ITEM_FILE}"),
    "imagefolder": (ClassFolderReader, "folder with images or videos"),
}


class LocalSource(TableSource):
    """A file (Parquet, JSONL, JSON, CSV or TSV) on this machine, or a folder of such files, of items or of classes."""

    type: Literal["local"]
    path: str
    """File or folder; a `*` in the last part takes every file that matches: `rows/train-*-of-00003.parquet`."""
    format: Literal["auto", "parquet", "jsonl", "json", "csv", "tsv", "geometry3k", "imagefolder"] = "auto"
    """How rows are stored; `auto` goes by the ending of the name. `geometry3k` is the published folder of item folders
    (data.json and img_diagram.png). `imagefolder` is a folder with one folder of images or videos for each class, and
    the class is the answer."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder that relative paths start from; null takes the data file's folder."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def reader(self) -> LocalReader:
        """The reader for the path, before it has looked for the configured columns. Raises ValueError where the path
        does not exist, or has no known format or more than one."""
        path = Path(self.path)
        if not files_named(path):
            raise ValueError(f"data source {path}: no such file or folder")
        kind = _find_kind(path) if self.format == "auto" else self.format
        if kind in _FOLDERS:
            reader_of, content = _FOLDERS[kind]
            reader = reader_of(place=self.path, media_dir=self.media_dir, limit=self.limit)
            if not path.is_dir() or not reader.files:
                raise ValueError(f"data source {path}: no {content} in it")
            return reader
        files = _files_of(path, f".{kind}")
        return _table(kind, files)(
            place=self.path, files=files, columns=self.columns, media_dir=self.media_dir, limit=self.limit
        )

    @override
    def open(self) -> LocalReader:
        reader = self.reader()
        if isinstance(reader, FileTable):
            reader.check()
        return reader

    @override
    def fingerprint(self) -> str:
        reader = self.open()
        content = {
            "name": reader.name,
            "columns": self.columns.model_dump(mode="json"),
            "limit": self.limit,
            "media": media_digests(reader),
            **reader.content(),
        }
        return digest_of(content)

    @override
    def glance(self) -> Glance:
        return self.reader().glance()

    @override
    def paths(self) -> Iterator[NamedPath]:
        yield NamedPath("path", Path(self.path), "file or folder")
        yield from super().paths()

    @override
    def located(self, files: SourceFiles) -> Self:
        return super().located(files).model_copy(update={"path": files.data(self.path)})


def _table(kind: str, files: Sequence[Path]) -> type[FileTable]:
    if kind == "parquet":
        from rl_core.sources.parquet_rows import ParquetReader  # here: a config loads no Arrow

        return ParquetReader
    if kind == "json":
        return JsonReader if all(map(is_one_json_value, files)) else JsonlReader
    return {"csv": CsvReader, "tsv": TsvReader}.get(kind, JsonlReader)


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
            "or videos; `format` may name json, csv or tsv"
        )
    if len(found) > 1:
        raise ValueError(f"data source {path}: the folder holds {' and '.join(found)}; choose with `format`")
    return found[0]


def _has_classes(path: Path) -> bool:
    # Otherwise they are images beside a table of rows.
    tables = [child for child in path.iterdir() if child.suffix in (".json", ".csv", ".tsv")]
    return not tables and sum(child.is_dir() and is_class_folder(child) for child in path.iterdir()) > 1


def _files_of(path: Path, ending: str) -> list[Path]:
    files = sorted(path.glob(f"*{ending}")) if path.is_dir() else files_named(path)
    if not files:
        raise ValueError(f"data source {path}: no {ending} file in the folder")
    try:
        if files != [path]:  # a file that is named by itself may be one of several shards
            check_shards(files)
        for file in files:
            check_regular(file)
            if ending == ".jsonl" or (ending == ".json" and not is_one_json_value(file)):
                check_json_lines(file)
    except ValueError as error:
        raise ValueError(f"data source {path}: {error}") from None
    return files
