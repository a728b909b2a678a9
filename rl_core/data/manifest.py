"""The manifest of prepared data: counts, lengths, and the hashes of its files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from rl_core.digests import FileRecord, file_digest

MANIFEST_FILE = "manifest.json"


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

    def altered_files(self, folder: Path) -> list[str]:
        """Names of files that are missing or have other content than when they were prepared."""
        return [
            name
            for name, file in self.files.items()
            if not (folder / name).is_file() or file_digest(folder / name) != file.sha256
        ]
