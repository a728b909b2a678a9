"""The `hub` source: datasets of the Hugging Face hub."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of, file_digests
from rl_core.files import files_below
from rl_core.sources.columns import Columns
from rl_core.sources.rows import media_digests
from rl_core.sources.shards import check_splits
from rl_core.sources.source import Glance, Repository
from rl_core.sources.tables import RawRow, TableReader, TableSource

if TYPE_CHECKING:
    from datasets import Dataset

_COMMIT = re.compile(r"[0-9a-f]{40}")
_BATCH_ROWS = 64

_REFUSALS = (RuntimeError, UnpicklingError)
"""What `datasets` raises where it would have to run code: a loading script, or a pickle inside an archive."""

_NO_CONFIG = "Config name is missing"
"""How the message of `datasets` begins where a data set has several configurations and none was named."""

_DEFAULT = "default"
"""The configuration that `datasets` takes where none is chosen."""

SPLIT_NAME: Final = r"^[^@\s]+@[^@\s]+$"
"""`name@split`: a dataset of the hub, or a folder in its place, and one of its splits."""


class HubSource(TableSource):
    """A dataset of the Hugging Face hub, loaded through `datasets` (HF_ENDPOINT and HF_HUB_OFFLINE are honoured)."""

    type: Literal["hub"]
    name: str = Field(pattern=SPLIT_NAME)
    """`owner/name@split`."""
    config: str | None = None
    """Configuration (also called subset), such as `main`, of a dataset that has several."""
    revision: str | None = None
    """Branch, tag or commit; a commit makes the run reproducible."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder on this machine that relative paths start from; needed where rows hold paths."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""

    def reader(self) -> "HubReader":
        """The split, before it has looked for the configured columns. Raises ValueError where dataset, split or
        revision does not exist, or the hub cannot be reached."""
        return HubReader(
            place=self.name,
            config=self.config,
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
        name, folder = self.repository_name, Path(self.repository_name)
        content = {
            "settings": self.model_dump(mode="json", exclude={"revision", "media_dir"}),
            "content": file_digests(files_below(folder)) if folder.is_dir() else resolve_commit(name, self.revision),
            "media": None if self.media_dir is None else media_digests(self.reader()),
        }
        return digest_of(content)

    @override
    def glance(self) -> Glance:
        if (card := self._card()) is not None:
            why = why_no_config(metadata_of(card), self.config)
            if why is not None:
                raise ValueError(f"data source {self.name} {why}")
        return Glance(names=None if self.names_its_rows else frozenset([self.repository_name]))

    @property
    def repository_name(self) -> str:
        """`owner/name`, or the path of the folder in its place."""
        return self.name.rpartition("@")[0]

    def _card(self) -> Path | None:
        """The card of a folder, or of a repository that this machine has fetched."""
        from huggingface_hub import try_to_load_from_cache

        name, folder = self.repository_name, Path(self.repository_name)
        if folder.is_dir():
            return folder / "README.md" if (folder / "README.md").is_file() else None
        cached = try_to_load_from_cache(name, "README.md", repo_type="dataset", revision=self.revision)
        return Path(cached) if isinstance(cached, str) else None

    @override
    def repository(self) -> Repository:
        return Repository("name", self.name.partition("@")[0], self.revision, self.config)


@dataclass(frozen=True, kw_only=True)
class HubReader(TableReader):
    """One split of a dataset repository, at one commit, without decoding its images. A local folder in place of
    `owner/name` works as well. Raises ValueError where dataset, split or revision does not exist or cannot be
    reached."""

    config: str | None
    revision: str | None

    def __post_init__(self) -> None:
        _ = self._dataset

    @property
    @override
    def name(self) -> str:
        return self.place.rpartition("@")[0]

    @override
    def column_names(self) -> set[str]:
        return set(self._dataset.column_names)

    @override
    def class_names(self) -> dict[str, list[str]]:
        features = self._dataset.features.items()
        return {name: list(feature.names) for name, feature in features if hasattr(feature, "names")}

    @override
    def count(self) -> int:
        return len(self._dataset)

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        from rl_core.sources.parquet_rows import arrow_rows  # here: a config loads no Arrow

        # The rows of a local folder may name files in it; paths of a dataset on the hub mean nothing on this machine
        # unless `media_dir` is set.
        folder = Path(self.name)
        # Arrow tables hold an image as its bytes and path; any other format would decode it.
        tables = self._dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS)
        for values, column in chain.from_iterable(map(arrow_rows, tables)):
            yield RawRow(values, folder, column=column)

    @cached_property
    def _dataset(self) -> "Dataset":
        return _load(self.place, self.config, self.revision)

    @cached_property
    def _caches(self) -> tuple[Path, ...]:
        """The folders in which `datasets` puts the files that it fetches and unpacks."""
        import datasets.config
        from huggingface_hub import constants

        return Path(datasets.config.HF_DATASETS_CACHE), Path(constants.HF_HUB_CACHE)


def metadata_of(card: Path) -> Mapping[str, Any]:
    """What the card of a dataset says to programs. Raises ValueError where that is no YAML, and OSError where the file
    cannot be read."""
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        return metadata_load(card) or {}
    except YAMLError as error:
        raise ValueError(f"the metadata at the head of {card} are no YAML: {error}") from None


def why_no_config(metadata: Mapping[str, Any], chosen: str | None) -> str | None:
    """Why a dataset with this card has no configuration of the `chosen` name or, where none is chosen, none by default;
    None where it has one, or the card lists none."""
    listed = metadata.get("configs") or ()
    named = {f"{one.get('config_name', _DEFAULT)}": one for one in listed if isinstance(one, Mapping)}
    one_of = f"set `config` to one of {', '.join(named)}"
    if chosen is not None:
        return f"has no configuration {chosen!r}: {one_of}" if named and chosen not in named else None
    has_default = len(named) < 2 or _DEFAULT in named or any(one.get("default") for one in named.values())
    return None if has_default else f"has several configurations: {one_of}"


def config_names(repository: str) -> list[str]:
    """The configurations of a dataset. Raises ValueError where it does not exist or cannot be reached."""
    return _names("get_dataset_config_names", repository)


def split_names(repository: str, config: str | None = None) -> list[str]:
    """The splits of a dataset, or of one of its configurations. Raises ValueError where it does not exist or cannot be
    reached."""
    return _names("get_dataset_split_names", repository, config)


def _names(function: str, repository: str, *arguments: str | None) -> list[str]:
    import datasets

    try:
        revision = None if Path(repository).is_dir() else resolve_commit(repository, None)
        names: list[str] = getattr(datasets, function)(repository, *arguments, revision=revision)
    except (OSError, datasets.exceptions.DatasetsError, *_REFUSALS) as error:
        raise ValueError(f"dataset {repository}: {error}") from None
    return names


def resolve_commit(repository: str, revision: str | None) -> str:
    """The commit of a revision (None: the main branch), from the hub or, when offline, from its local cache. Raises
    ValueError where neither knows it."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    if revision and _COMMIT.fullmatch(revision):
        return revision
    try:
        # Where the hub cannot be reached this comes from the cache, whose folders are named after commits.
        card = hf_hub_download(repository, "README.md", repo_type="dataset", revision=revision)
        return Path(card).parent.name
    except LocalEntryNotFoundError:
        raise ValueError(
            f"dataset {repository}: the hub cannot be reached and the cache does not know revision "
            f"{revision or 'main'!r}; go online once, set `revision` to a cached commit, or use a local source"
        ) from None
    except EntryNotFoundError:
        commit = HfApi().dataset_info(repository, revision=revision).sha
        assert commit is not None, "the hub names the commit of every revision"
        return commit
    except HfHubHTTPError as error:
        raise ValueError(f"dataset {repository}: the hub refuses it: {error}") from None


def _load(place: str, config: str | None, revision: str | None) -> "Dataset":
    """The split `owner/name@split` of a configuration, at the resolved commit."""
    import datasets

    repository, _, split = place.rpartition("@")
    commit = None if Path(repository).is_dir() else resolve_commit(repository, revision)
    try:
        if commit is None:
            check_splits(files_below(Path(repository)))
        dataset = datasets.load_dataset(repository, config, split=split, revision=commit)
    except (OSError, ValueError, datasets.exceptions.DatasetsError, *_REFUSALS) as error:
        if config is None and _NO_CONFIG in str(error):
            several = config_names(repository)
            raise ValueError(
                f"data source {place} has several configurations: set `config` to one of {', '.join(several)}"
            ) from None
        raise ValueError(f"data source {place}: {error}") from None
    if commit is not None:
        _check_commit(dataset, place, commit)
    return dataset


def _check_commit(dataset: "Dataset", place: str, commit: str) -> None:
    # When the hub cannot be reached, `datasets` takes its newest copy, whatever revision was asked for.
    folders = {Path(file["filename"]).parent.name for file in dataset.cache_files}
    if folders != {commit}:
        raise ValueError(
            f"data source {place}: the cache holds commit {', '.join(sorted(folders))}, not {commit}; "
            "go online once, or set `revision` to the cached one"
        )
