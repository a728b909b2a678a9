"""What a preparation made: counts, lengths, and the hashes of its files."""

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
    """Prompt lengths in tokens, image tokens included, of the rows that are kept."""

    shortest: int
    mean: float
    p95: int
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "LengthSummary":
        """Summary of at least one length."""
        p95 = np.percentile(lengths, 95, method="higher")
        return cls(shortest=min(lengths), mean=float(np.mean(lengths)), p95=int(p95), longest=max(lengths))


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitSummary:
    """One split.

    Attributes:
        source: Name of its source.
        read: Rows read; the sum of the next three.
        rows: Rows kept.
        rejected: Rows that cannot be used; rejected.jsonl names each.
        overlong: Rows left out for their length; rejected.jsonl names them too.
        images: Different images of the rows kept, frames of videos among them.
        data_sources: Rows kept by data source.
        prompt_tokens: Lengths of the prompts kept.
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
    """The whole preparation.

    Attributes:
        fingerprint: Identity of all it depends on (rl_core.data.fingerprint).
        splits: Summary by name: "train", "validation" and, where asked for, "cold_start".
        images: Different images stored.
        files: SHA-256 by file name.
    """

    fingerprint: str
    splits: Mapping[str, SplitSummary]
    images: int
    files: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain values, as manifest.json has them."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> "DataManifest":
        """The manifest of a prepared folder. Raises ValueError when there is none or it is damaged."""
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
        """Names of files that are missing or no longer have their content."""
        return [name for name, digest in self.files.items() if not _has_content(folder / name, digest)]


def _split_summary(record: dict[str, Any]) -> SplitSummary:
    lengths = LengthSummary(**record.pop("prompt_tokens"))
    return SplitSummary(prompt_tokens=lengths, **record)


def _has_content(path: Path, digest: str) -> bool:
    return path.is_file() and file_digest(path) == digest
