"""The `local` source: files and folders of this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import Field

from rl_core.sources.columns import Columns
from rl_core.sources.source import DataSource, Glance, NamedPath, SourceFiles

if TYPE_CHECKING:
    from rl_core.sources.local_files import LocalReader

FILE_KINDS: Final = ("parquet", "jsonl", "json", "csv")
"""Files of rows, by the ending of their names."""


class LocalSource(DataSource):
    """A Parquet, JSONL, JSON or CSV file, or a folder of them or of items, on this machine."""

    type: Literal["local"]
    """Selects this source."""
    path: str
    """File or folder. A folder may hold Parquet / JSONL shards, or item folders as `format` says. A `*` in the last
    part takes every file of such a name, in order: `rows/train-*-of-00003.parquet`."""
    format: Literal["auto", "parquet", "jsonl", "json", "csv", "geometry3k", "imagefolder"] = "auto"
    """How rows are stored; `auto` goes by the ending. `json` is an array of objects, or one object a line. `geometry3k`
    is the published folder of item folders (data.json + img_diagram.png). `imagefolder` is a folder of classes, each a
    folder of images or videos: the class is the answer."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder that relative paths of images and videos start from; the data file's own folder when null."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def open(self) -> "LocalReader":
        """The reader that the path needs, its columns checked. Raises ValueError where nothing is there, it is of no
        known format or of more than one, or a configured column is missing from all of it."""
        # Imported here and below: a config loads no Arrow.
        from rl_core.sources.local_files import open_local

        return open_local(self)

    def fingerprint(self) -> str:
        """Every data file and every image and video that the rows name. Raises ValueError as `open` does."""
        from rl_core.sources.local_files import local_fingerprint

        return local_fingerprint(self)

    def first_rows(self, count: int) -> Self:
        """The first rows of all that it has."""
        return self.model_copy(update={"limit": min(self.limit or count, count)})

    def glance(self) -> Glance:
        """The footers of Parquet files, the beginning of JSONL. Raises ValueError and OSError where it cannot be
        read."""
        from rl_core.sources.local_glance import local_glance

        return local_glance(self)

    @property
    def names_its_rows(self) -> bool:
        """Whether a column does."""
        return self.columns.data_source_key is not None

    def paths(self) -> Iterator[NamedPath]:
        """The data and the folder of their media."""
        yield NamedPath("path", Path(self.path), "file or folder")
        if self.media_dir is not None:
            yield NamedPath("media_dir", Path(self.media_dir), "folder")

    def shared_with(self, other: DataSource) -> str | None:
        """A path that both read."""
        if not isinstance(other, LocalSource) or Path(self.path).absolute() != Path(other.path).absolute():
            return None
        return f"both read {self.path}"

    def located(self, files: SourceFiles) -> Self:
        """With the paths of data and media."""
        media_dir = self.media_dir and files.data(self.media_dir)
        return self.model_copy(update={"path": files.data(self.path), "media_dir": media_dir})
