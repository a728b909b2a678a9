"""The manifest of prepared data: counts, lengths, the hashes of its files, and the digest of everything that it depends
on. Imports neither transformers nor torch, because a plan must be quick."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from rl_core.config.data import ARRANGING, DataConfig
from rl_core.digests import FileRecord, digest_of, file_digest, file_digests
from rl_core.sources.source import DataSource

MANIFEST_FILE = "manifest.json"

FORMAT_VERSION = 6
"""Raised by hand when equal inputs are prepared differently, as by another renderer or another file layout."""

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
# Settings that enter the fingerprint as the content of the files that they name.
_NAMED_CONTENT = {"train": True, "validation": True, "prompt_template": True, "override_chat_template": True}


class LengthSummary(BaseModel, frozen=True, extra="forbid"):
    """Lengths of prompts in tokens, image tokens included."""

    shortest: int
    mean: float
    p95: int
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "LengthSummary":
        """The summary of one or more lengths."""
        p95 = np.percentile(lengths, 95, method="higher")
        return cls(shortest=min(lengths), mean=float(np.mean(lengths)), p95=int(p95), longest=max(lengths))


class SplitSummary(BaseModel, frozen=True, extra="forbid"):
    """The counts of one split: of `read` rows, `rows` were kept, `rejected` cannot be used and `overlong` are too long;
    rejected.jsonl names both. The other figures are of rows that were kept; frames of videos are images."""

    source: str
    read: int
    rows: int
    rejected: int
    overlong: int
    images: int
    data_sources: dict[str, int]
    prompt_tokens: LengthSummary


class DataManifest(BaseModel, frozen=True, extra="forbid"):
    """The splits ("train", "validation", and "cold_start" where it has a source of its own), the number of different
    images, the files by name, and the fingerprint of all that they depend on."""

    fingerprint: str
    splits: dict[str, SplitSummary]
    images: int
    files: dict[str, FileRecord]

    @classmethod
    def read(cls, folder: Path) -> "DataManifest":
        """The manifest of a prepared folder. Raises ValueError where there is none or it is damaged."""
        path = folder / MANIFEST_FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no prepared data: it has no {MANIFEST_FILE}") from None
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); prepare the data again") from None


def preparation_fingerprint(
    data: DataConfig,
    *,
    model_folder: Path,
    cold_start_source: DataSource | None,
    tools: Sequence[Mapping[str, Any]] = (),
    held_out_tools: Sequence[Mapping[str, Any]] = (),
    max_result_pixels: int | None = None,
) -> str:
    """Digest of everything that `prepare_dataset` depends on."""
    template = data.prompt_template
    sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
    return digest_of(
        {
            "format": FORMAT_VERSION,
            "settings": data.model_dump(mode="json", exclude={**ARRANGING, **_NAMED_CONTENT}),
            "template": None if template is None else file_digest(Path(template)),
            "model": _model_text_fingerprint(model_folder),
            "tools": list(tools),
            **({} if held_out_tools == tools else {"held-out tools": list(held_out_tools)}),
            **({} if max_result_pixels is None else {"max_result_pixels": max_result_pixels}),
            "sources": {name: source.fingerprint() for name, source in sources.items() if source is not None},
        }
    )


def _model_text_fingerprint(model_folder: Path) -> str:
    paths = sorted({path for pattern in _TEXT_FILES for path in model_folder.glob(pattern) if path.is_file()})
    names = [path.relative_to(model_folder).as_posix() for path in paths]
    return digest_of(dict(zip(names, file_digests(paths), strict=True)))
