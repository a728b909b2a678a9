"""The `hub` source: datasets of the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.sources.columns import Columns
from rl_core.sources.rows import media_digests
from rl_core.sources.source import DataSource, Glance, NamedPath, Repository, SourceFiles

if TYPE_CHECKING:
    from rl_core.sources.hub_rows import HubReader

SPLIT_NAME: Final = r"^[^@\s]+@[^@\s]+$"
"""`name@split`: a dataset of the hub, or a folder in its place, and one of its splits."""


class HubSource(DataSource):
    """A dataset of the Hugging Face hub, loaded through `datasets` (HF_ENDPOINT and HF_HUB_OFFLINE are honoured)."""

    type: Literal["hub"]
    """Selects this source."""
    name: str = Field(pattern=SPLIT_NAME)
    """`owner/name@split`."""
    revision: str | None = None
    """Branch, tag or commit; name a commit to make the run reproducible."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder on this machine that relative paths of images and videos start from; needed where rows hold paths."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def reader(self) -> "HubReader":
        """The split, before it has looked for the configured columns. Raises ValueError where dataset, split or
        revision does not exist, or the hub cannot be reached."""
        from rl_core.sources.hub_rows import HubReader  # here: a config loads no Arrow

        return HubReader(
            place=self.name,
            revision=self.revision,
            columns=self.columns,
            media_dir=self.media_dir,
            limit=self.limit,
        )

    @override
    def open(self) -> "HubReader":
        reader = self.reader()
        reader.check()
        return reader

    @override
    def fingerprint(self) -> str:
        from rl_core.sources.hub_rows import repository_content

        content = {
            "settings": self.model_dump(mode="json", exclude={"revision", "media_dir"}),
            "content": repository_content(self.repository_name, self.revision),
            "media": None if self.media_dir is None else media_digests(self.reader()),
        }
        return digest_of(content)

    @override
    def first_rows(self, count: int) -> Self:
        return self.model_copy(update={"limit": min(self.limit or count, count)})

    @override
    def glance(self) -> Glance:
        return Glance(names=None if self.names_its_rows else frozenset([self.repository_name]))

    @property
    def repository_name(self) -> str:
        """`owner/name`, or the path of the folder in its place."""
        return self.name.rpartition("@")[0]

    @property
    @override
    def names_its_rows(self) -> bool:
        return self.columns.data_source_key is not None

    @override
    def paths(self) -> Iterator[NamedPath]:
        if self.media_dir is not None:
            yield NamedPath("media_dir", Path(self.media_dir), "folder")

    @override
    def repository(self) -> Repository:
        return Repository("name", self.name.partition("@")[0], self.revision)

    @override
    def shared_with(self, other: DataSource) -> str | None:
        if not isinstance(other, HubSource) or (self.name, self.revision) != (other.name, other.revision):
            return None
        return f"both read {self.name}"

    @override
    def located(self, files: SourceFiles) -> Self:
        return self.model_copy(update={"media_dir": self.media_dir and files.data(self.media_dir)})
