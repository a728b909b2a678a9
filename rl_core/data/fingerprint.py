"""What prepared data depends on, as short hashes: the content of sources, the model's text side, the settings.

Imports neither transformers nor torch: planning a run compares fingerprints and must be quick.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from rl_core.config.data import ARRANGING, CountingSource, DataConfig, HubSource, LocalSource, MixtureSource, Source
from rl_core.config.loading import digest_of
from rl_core.data.class_folders import ClassFolderReader
from rl_core.data.hub import HubReader, is_local_folder, resolve_commit
from rl_core.data.local import open_local
from rl_core.data.rows import Row, RowReader
from rl_core.files import files_below, hash_file, is_regular

FORMAT_VERSION = 6
"""Raised by hand when equal inputs would be prepared differently: another renderer, another file layout."""

# Files of a model folder that decide how text becomes tokens and how many tokens an image takes.
_TEXT_FILES = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
    "additional_chat_templates/*",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "config.json",
    "*.py",
)
# Settings that stand here as the content they name.
_NAMED_CONTENT = {"train": True, "validation": True, "prompt_template": True, "override_chat_template": True}


def source_fingerprint(source: Source) -> str:
    """Identity of a source's content: every data and media file of a local one, the resolved commit of a hub one
    and its media files, the settings of a counting one, all of these for a mixture.

    Raises:
        ValueError: The source does not exist, cannot be reached or misses a column.
    """
    match source:
        case CountingSource():
            return digest_of(source)
        case LocalSource():
            return digest_of(_local_content(source))
        case HubSource():
            return digest_of(_hub_content(source))
        case MixtureSource():
            return digest_of({name: source_fingerprint(part) for name, part in source.sources.items()})


def preparation_fingerprint(data: DataConfig, *, model_folder: Path, cold_start_source: Source | None) -> str:
    """Identity of everything that prepare_dataset's result depends on."""
    template = data.prompt_template
    sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
    return digest_of(
        {
            "format": FORMAT_VERSION,
            "settings": data.model_dump(mode="json", exclude={**ARRANGING, **_NAMED_CONTENT}),
            "template": None if template is None else file_digest(Path(template)),
            "model": model_text_fingerprint(model_folder),
            "sources": {name: source_fingerprint(source) for name, source in sources.items() if source is not None},
        }
    )


def model_text_fingerprint(model_folder: Path) -> str:
    """Identity of a model's tokenizer, chat template and processor; weights do not matter here."""
    paths = sorted({path for pattern in _TEXT_FILES for path in model_folder.glob(pattern) if path.is_file()})
    names = [path.relative_to(model_folder).as_posix() for path in paths]
    return digest_of(dict(zip(names, _hashes(paths), strict=True)))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, remembered in this process while its size and time of change stay the same.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        status = path.stat()
        return _digest(path.resolve(), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


@cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    return hash_file(path)


def _local_content(source: LocalSource) -> dict[str, object]:
    reader = open_local(source)
    return {
        "name": reader.name,
        "columns": source.columns.model_dump(mode="json"),
        "limit": source.limit,
        "files": _hashes(reader.files),
        "media": _hashes(_media_files(reader)),
        **({"names": reader.names} if isinstance(reader, ClassFolderReader) else {}),
    }


def _hub_content(source: HubSource) -> dict[str, object]:
    folder = Path(source.name.rpartition("@")[0])
    return {
        "settings": source.model_dump(mode="json", exclude={"revision", "media_dir"}),
        "content": _hashes(files_below(folder)) if is_local_folder(source) else resolve_commit(source),
        "media": None if source.media_dir is None else _hashes(_media_files(HubReader(source))),
    }


def _media_files(reader: RowReader) -> list[Path]:
    shown = (medium for row in reader if isinstance(row, Row) for medium in (*row.images, *row.videos))
    return [medium for medium in shown if isinstance(medium, Path)]


def _hashes(paths: Iterable[Path]) -> list[str | None]:
    """Hashes in order; None for a file that is not there, whose appearance is then a change."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda path: file_digest(path) if is_regular(path) else None, paths))
