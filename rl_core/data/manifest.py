"""The manifest of prepared data: counts, lengths, and the hashes of its files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_core.digests import file_digest

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthSummary:
    """Lengths of the prompts that are kept, in tokens, image tokens included."""

    shortest: int
    mean: float
    p95: int
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "LengthSummary":
        """The summary of one or more lengths."""
        p95 = np.percentile(lengths, 95, method="higher")
        return cls(shortest=min(lengths), mean=float(np.mean(lengths)), p95=int(p95), longest=max(lengths))


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitSummary:
    """The counts of one split.

    Attributes:
        source: Name of its source.
        read: Rows that were read: the sum of the next three numbers.
        rows: Rows that were kept.
        rejected: Rows that cannot be used; rejected.jsonl names each of them.
        overlong: Rows that are too long; rejected.jsonl names them too.
        images: Different images of the rows that were kept, frames of videos included.
        data_sources: Rows that were kept, by data source.
        prompt_tokens: Lengths of the prompts that were kept.
    """

    source: str
    read: int
    rows: int
    rejected: int
    overlong: int
    images: int
    data_sources: Mapping[str, int]
    prompt_tokens: LengthSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class DataManifest:
    """The manifest of all splits.

    Attributes:
        fingerprint: Identity of everything that the data depends on (rl_core.data.fingerprint).
        splits: Summaries by name: "train", "validation", and "cold_start" where the config has a source for it.
        images: Number of different images in the store.
        files: SHA-256 by file name.
    """

    fingerprint: str
    splits: Mapping[str, SplitSummary]
    images: int
    files: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The plain values that manifest.json holds."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> "DataManifest":
        """The manifest of a prepared folder. Raises ValueError where there is none or it is damaged."""
        path = folder / MANIFEST_FILE
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            splits = {name: _split_summary(split) for name, split in record.pop("splits").items()}
            return cls(splits=splits, **record)
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no prepared data: it has no {MANIFEST_FILE}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is damaged ({error}); prepare the data again") from None

    def altered_files(self, folder: Path) -> list[str]:
        """Names of files that are missing or have other content than when they were prepared."""
        return [name for name, digest in self.files.items() if not _has_content(folder / name, digest)]


def _split_summary(record: dict[str, Any]) -> SplitSummary:
    lengths = LengthSummary(**record.pop("prompt_tokens"))
    return SplitSummary(prompt_tokens=lengths, **record)


def _has_content(path: Path, digest: str) -> bool:
    return path.is_file() and file_digest(path) == digest
