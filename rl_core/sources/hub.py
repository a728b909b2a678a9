"""The `hub` source: data sets of the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import Field

from rl_core.sources.columns import Columns
from rl_core.sources.source import DataSource, Glance, NamedPath, Repository, SourceFiles

if TYPE_CHECKING:
    from rl_core.sources.hub_rows import HubReader

SPLIT_NAME: Final = r"^[^@\s]+@[^@\s]+$"
"""`name@split`: a data set of the hub, or a folder in its place, and one of its splits."""


class HubSource(DataSource):
    """A dataset of the Hugging Face hub, loaded through `datasets` (HF_ENDPOINT and HF_HUB_OFFLINE are honoured)."""

    type: Literal["hub"]
    """Selects this source."""
    name: str = Field(pattern=SPLIT_NAME)
    """`owner/name@split`."""
    revision: str | None = None
    """Branch, tag or commit; pin a commit to make the run reproducible."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder on this machine that relative image paths start from; needed where rows hold paths."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def open(self) -> "HubReader":
        """The split, its columns checked. Raises ValueError where data set, split, revision or a configured column do
        not exist, or the hub cannot be reached."""
        # Imported here and below: a config loads no Arrow.
        from rl_core.sources.hub_rows import open_hub

        return open_hub(self)

    def fingerprint(self) -> str:
        """The commit, and every image and video of this machine that the rows name. Raises ValueError as `open`
        does."""
        from rl_core.sources.hub_rows import hub_fingerprint

        return hub_fingerprint(self)

    def first_rows(self, count: int) -> Self:
        """The first rows of the split."""
        return self.model_copy(update={"limit": min(self.limit or count, count)})

    def glance(self) -> Glance:
        """Its name. What more there is only the hub knows."""
        return Glance(names=None if self.names_its_rows else frozenset([self.repository_name]))

    @property
    def repository_name(self) -> str:
        """`owner/name`, or the folder in its place."""
        return self.name.rpartition("@")[0]

    @property
    def names_its_rows(self) -> bool:
        """Whether a column does."""
        return self.columns.data_source_key is not None

    def paths(self) -> Iterator[NamedPath]:
        """The folder of its media."""
        if self.media_dir is not None:
            yield NamedPath("media_dir", Path(self.media_dir), "folder")

    def repository(self) -> Repository:
        """The data set."""
        return Repository("name", self.name.partition("@")[0], self.revision)

    def shared_with(self, other: DataSource) -> str | None:
        """A split of one revision that both read."""
        if not isinstance(other, HubSource) or (self.name, self.revision) != (other.name, other.revision):
            return None
        return f"both read {self.name}"

    def located(self, files: SourceFiles) -> Self:
        """With the folder of its media. Its name stays, be it a folder's: it is the name of its rows' data source."""
        return self.model_copy(update={"media_dir": self.media_dir and files.data(self.media_dir)})
