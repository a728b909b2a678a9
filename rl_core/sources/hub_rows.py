"""Datasets of the Hugging Face hub, read through `datasets` without decoding their images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from rl_core.digests import digest_of, file_digests
from rl_core.files import files_below
from rl_core.sources.columns import RowParser, check_columns
from rl_core.sources.hub import HubSource
from rl_core.sources.media import media_digests
from rl_core.sources.rows import BadRow, Row
from rl_core.sources.shards import check_splits
from rl_core.sources.tables import RawRow, Unreadable, arrow_rows

if TYPE_CHECKING:
    from datasets import Dataset

_COMMIT = re.compile(r"[0-9a-f]{40}")
_BATCH_ROWS = 64

_REFUSALS = (RuntimeError, UnpicklingError)
"""What `datasets` raises where it would have to run code: a loading script, or a pickle inside an archive."""


@dataclass(frozen=True)
class HubReader:
    """One split of a dataset repository, at one commit. A local folder in place of `owner/name` works as well.

    Raises:
        ValueError: The dataset, split or revision does not exist or cannot be reached.
    """

    source: HubSource

    def __post_init__(self) -> None:
        _ = self._dataset

    @property
    def name(self) -> str:
        """The repository's name."""
        return self.source.repository_name

    def columns(self) -> set[str]:
        """Names of the split's columns."""
        return set(self._dataset.column_names)

    @property
    def _media_dir(self) -> Path:
        """The folder that paths in rows start from. The rows of a local folder may name files in it; paths of a dataset
        on the hub mean nothing on this machine unless `media_dir` is set."""
        return Path(self.source.media_dir or self.name)

    @cached_property
    def _dataset(self) -> "Dataset":
        return _load(self.source)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        rows = len(self._dataset)
        return rows if self.source.limit is None else min(rows, self.source.limit)

    def __iter__(self) -> Iterator[Row | BadRow]:
        parser = RowParser(
            columns=self.source.columns, data_source=self.name, media_dir=self._media_dir, caches=_caches()
        )
        for index, raw in enumerate(islice(self.raw_rows(), self.source.limit)):
            if isinstance(raw.values, str):
                yield BadRow(index=index, column=raw.column, reason=raw.values)
            else:
                yield parser.parse(raw.values, index=index)

    def raw_rows(self) -> Iterator[RawRow]:
        """Every row of the split."""
        # Arrow tables hold an image as its bytes and path; any other format would decode it.
        tables = self._dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS)
        for values in (values for table in tables for values in arrow_rows(table)):
            if isinstance(values, Unreadable):
                yield RawRow(values.reason, self._media_dir, self.name, column=values.column)
            else:
                yield RawRow(values, self._media_dir, self.name)


def open_hub(source: HubSource) -> HubReader:
    """The reader of a split, with its columns checked.

    Raises:
        ValueError: The dataset, split, revision or a configured column does not exist, or the hub cannot be reached.
    """
    reader = HubReader(source)
    check_columns(reader.columns(), source.columns, place=source.name)
    return reader


def hub_fingerprint(source: HubSource) -> str:
    """Identity of the commit and of every media file on this machine.

    Raises:
        ValueError: The dataset, split or revision does not exist, or the hub cannot be reached.
    """
    folder = Path(source.repository_name)
    content = {
        "settings": source.model_dump(mode="json", exclude={"revision", "media_dir"}),
        "content": file_digests(files_below(folder)) if is_local_folder(source) else resolve_commit(source),
        "media": None if source.media_dir is None else media_digests(HubReader(source)),
    }
    return digest_of(content)


def split_names(repository: str) -> list[str]:
    """The names of the splits of a dataset on the hub.

    Raises:
        ValueError: The dataset does not exist or cannot be reached.
    """
    import datasets

    source = HubSource(type="hub", name=f"{repository}@train")
    try:
        revision = None if is_local_folder(source) else resolve_commit(source)
        names: list[str] = datasets.get_dataset_split_names(repository, revision=revision)
    except (OSError, datasets.exceptions.DatasetsError, *_REFUSALS) as error:
        raise ValueError(f"dataset {repository}: {error}") from None
    return names


def _caches() -> tuple[Path, ...]:
    """The folders in which `datasets` puts the files that it fetches and unpacks."""
    import datasets.config
    from huggingface_hub import constants

    return Path(datasets.config.HF_DATASETS_CACHE), Path(constants.HF_HUB_CACHE)


def is_local_folder(source: HubSource) -> bool:
    """Whether the name is a folder on this machine, which `datasets` reads in place of the hub."""
    return Path(source.repository_name).is_dir()


def resolve_commit(source: HubSource) -> str:
    """The commit that the revision of a hub source stands for, from the hub or, when offline, from its local cache.

    Raises:
        ValueError: The dataset or revision does not exist, or the hub cannot be reached and the cache has no answer.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    if source.revision and _COMMIT.fullmatch(source.revision):
        return source.revision
    repository, revision = source.repository_name, source.revision
    try:
        # Where the hub cannot be reached this comes from the cache, whose folders are named after commits.
        card = hf_hub_download(repository, "README.md", repo_type="dataset", revision=revision)
        return Path(card).parent.name
    except LocalEntryNotFoundError:
        raise ValueError(
            f"data source {source.name}: the hub cannot be reached and the cache does not know revision "
            f"{revision or 'main'!r}; go online once, set `revision` to a cached commit, or use a local source"
        ) from None
    except EntryNotFoundError:
        commit = HfApi().dataset_info(repository, revision=revision).sha
        assert commit is not None, "the hub names the commit of every revision"
        return commit
    except HfHubHTTPError as error:
        raise ValueError(f"data source {source.name}: the hub refuses it: {error}") from None


def _load(source: HubSource) -> "Dataset":
    """The split, at the resolved commit."""
    import datasets

    repository, _, split = source.name.rpartition("@")
    revision = None if is_local_folder(source) else resolve_commit(source)
    try:
        if revision is None:
            check_splits(files_below(Path(repository)))
        dataset = datasets.load_dataset(repository, split=split, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError, *_REFUSALS) as error:
        raise ValueError(f"data source {source.name}: {error}") from None
    if revision is not None:
        _check_commit(dataset, source, revision)
    return dataset


def _check_commit(dataset: "Dataset", source: HubSource, commit: str) -> None:
    """Raises ValueError where `datasets` has read another commit: when the hub cannot be reached, it takes the newest
    cached copy, whatever revision was asked for."""
    folders = {Path(file["filename"]).parent.name for file in dataset.cache_files}
    if folders != {commit}:
        raise ValueError(
            f"data source {source.name}: the cache holds commit {', '.join(sorted(folders))}, not {commit}; "
            "go online once, or set `revision` to the cached one"
        )
