"""The `local` source: files and folders of this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.sources.columns import Columns
from rl_core.sources.rows import media_digests
from rl_core.sources.source import DataSource, Glance, NamedPath, SourceFiles

if TYPE_CHECKING:
    from rl_core.sources.local_files import LocalReader


class LocalSource(DataSource):
    """A file (Parquet, JSONL, JSON or CSV) on this machine, or a folder of such files, of items or of classes."""

    type: Literal["local"]
    """Selects this source."""
    path: str
    """File or folder. A folder may hold Parquet / JSONL shards, or item folders as `format` says. A `*` in the last
    part takes every file whose name matches, in order: `rows/train-*-of-00003.parquet`."""
    format: Literal["auto", "parquet", "jsonl", "json", "csv", "geometry3k", "imagefolder"] = "auto"
    """How rows are stored; `auto` goes by the ending of the name. `json` is an array of objects, or one object on each
    line. `geometry3k` is the published folder of item folders (data.json and img_diagram.png). `imagefolder` is a
    folder with one folder of images or videos for each class, and the class is the answer."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder that relative paths of images and videos start from; the data file's own folder when null."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def reader(self) -> "LocalReader":
        """The reader for the path, before it has looked for the configured columns. Raises ValueError where the path
        does not exist, or has no known format or more than one."""
        from rl_core.sources.local_files import find_reader  # here: a config loads no Arrow

        return find_reader(
            self.path, kind=self.format, columns=self.columns, media_dir=self.media_dir, limit=self.limit
        )

    @override
    def open(self) -> "LocalReader":
        reader = self.reader()
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
    def first_rows(self, count: int) -> Self:
        return self.model_copy(update={"limit": min(self.limit or count, count)})

    @override
    def glance(self) -> Glance:
        return self.reader().glance()

    @property
    @override
    def names_its_rows(self) -> bool:
        return self.columns.data_source_key is not None

    @override
    def paths(self) -> Iterator[NamedPath]:
        yield NamedPath("path", Path(self.path), "file or folder")
        if self.media_dir is not None:
            yield NamedPath("media_dir", Path(self.media_dir), "folder")

    @override
    def shared_with(self, other: DataSource) -> str | None:
        if not isinstance(other, LocalSource) or Path(self.path).absolute() != Path(other.path).absolute():
            return None
        return f"both read {self.path}"

    @override
    def located(self, files: SourceFiles) -> Self:
        media_dir = self.media_dir and files.data(self.media_dir)
        return self.model_copy(update={"path": files.data(self.path), "media_dir": media_dir})
