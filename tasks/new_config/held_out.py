"""Held-out rows for a data set that has none: a share of its rows is set apart once and for all."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rl_core.digests import hash_file
from rl_core.files import files_named
from rl_core.randomness import keyed_seed
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, ImageInput, Row, with_files_checked
from rl_core.sources.shards import shards_pattern
from tasks.new_config.row_files import RowFile, encoded

HELD_OUT_NAMES = ("validation", "valid", "val", "test", "dev")
_SHARE = 0.1
_MOST = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """Rows of some data that cannot be used, of `total` rows. Those that a run does not read again were left out."""

    data: str
    rows: Sequence[BadRow]
    total: int
    is_read_again: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Training and held-out rows, where they come from in words, and the unusable rows of each of the data."""

    train: LocalSource | HubSource
    validation: LocalSource | HubSource
    origin: str
    unusable: Sequence[Unusable]


def find_split(path: Path) -> tuple[Path, Path] | None:
    """Find training and held-out data by their names: two children of a folder, or `path` and a file beside it. The
    shards of a split count as one child, whose path has a `*`. Raises ValueError where two children have one of the
    names; the message has both."""
    given = set(files_named(path))
    folder = path if path.is_dir() else path.parent
    named = _data_by_name(folder)
    held_out = next((named[name] for name in HELD_OUT_NAMES if name in named), None)
    train = named.get("train") if path.is_dir() else [path]
    if train is None or held_out is None or any(given & set(files_named(child)) for child in held_out):
        return None
    return _only(train), _only(held_out)


def _data_by_name(folder: Path) -> dict[str, list[Path]]:
    """[first word of the name] -> readable children; the shards of a split count as one child."""
    named: dict[str, list[Path]] = {}
    for child in sorted(folder.iterdir()):
        claims = named.setdefault(re.split(r"[-_.]", child.name.lower(), maxsplit=1)[0], [])
        pattern = shards_pattern(child) if child.is_file() else None
        claim = pattern if pattern is not None and len(files_named(pattern)) > 1 else child
        if claim not in claims and is_data(child):
            claims.append(claim)
    return {name: claims for name, claims in named.items() if claims}


def is_data(child: Path) -> bool:
    """Whether a local source can read this file or folder; images and programs beside the rows are not data."""
    try:
        LocalSource(type="local", path=str(child)).reader()
    except ValueError:
        return False
    return True


def _only(claims: Sequence[Path]) -> Path:
    if len(claims) > 1:
        raise ValueError(
            f"the names of {' and '.join(map(str, claims))} begin with the same word; say which of them is meant: "
            "sightline init DATA --validation HELD_OUT"
        )
    return claims[0]


def set_rows_apart(source: LocalSource | HubSource, folder: Path) -> Split:
    """Write train.parquet and validation.parquet into `folder`: about a tenth of the rows, at most 500, is held out.
    All columns are kept. Unusable rows are left out, and named in the result.

    Rows that share an image (or the question, where they have no image) stay together, so that nothing held out is seen
    in training. On which side they are depends on their content alone. Raises ValueError where no rows can be held out;
    the message says why."""
    outlines: list[_Outline] = []
    bad: list[BadRow] = []
    extra: dict[str, None] = {}
    for row in with_files_checked(source.open()):
        if isinstance(row, BadRow):
            bad.append(row)
        else:
            outlines.append(_Outline(row.index, row.question, _contents(row)))
            extra.update(dict.fromkeys(row.extra))
    held_out = _choose(outlines, bad)
    sides = {
        name: RowFile(folder / f"{name}.parquet", extra=extra).write(
            row for row in source.open() if isinstance(row, Row) and row.index in chosen
        )
        for name, chosen in (
            ("train", {outline.number for outline in outlines} - held_out),
            ("validation", held_out),
        )
    }
    return Split(
        train=sides["train"],
        validation=sides["validation"],
        origin=f"{len(held_out)} of {len(outlines)} usable rows were set apart in {folder}",
        unusable=[Unusable(data=name_of(source), rows=bad, total=len(bad) + len(outlines), is_read_again=False)],
    )


def survey(source: LocalSource | HubSource) -> Unusable:
    """Find the unusable rows of a source, as far as they are known without opening images."""
    rows, total = [], 0
    for row in with_files_checked(source.open()):
        total += 1
        if isinstance(row, BadRow):
            rows.append(row)
    return Unusable(data=name_of(source), rows=rows, total=total, is_read_again=True)


def name_of(source: LocalSource | HubSource) -> str:
    """The name by which the user called the data."""
    return source.path if isinstance(source, LocalSource) else source.name


class _Outline(NamedTuple):
    """What decides on which side a row may be: its number, its question, and hashes of its images and videos."""

    number: int
    question: str
    contents: Sequence[str]


def _choose(outlines: Sequence[_Outline], bad: Sequence[BadRow]) -> set[int]:
    """Numbers of the rows to hold out. Raises ValueError where nothing would be left to train on."""
    first = f"; the first of {len(bad)} unusable row(s): {bad[0]}" if bad else ""
    if not outlines:
        raise ValueError(f"no row can be used{first}")
    clusters = sorted(_clusters(outlines), key=lambda rows: keyed_seed(0, "held-out", rows[0].question, len(rows)))
    wanted = max(1, min(_MOST, int(len(outlines) * _SHARE)))
    held_out: set[int] = set()
    while clusters and len(held_out) < wanted:
        held_out |= {row.number for row in clusters.pop()}
    if not clusters:
        raise ValueError(
            f"none of the {len(outlines)} usable row(s) can be held out, because all of them share an image, a video "
            f"or a question; name held-out data with --validation{first}"
        )
    return held_out


def _clusters(outlines: Sequence[_Outline]) -> list[list[_Outline]]:
    """Groups of rows that are linked by shared content."""
    leader = list(range(len(outlines)))  # union-find: each row points to another row of its group

    def root(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    first_with: dict[str, int] = {}
    for place, outline in enumerate(outlines):
        for content in outline.contents:
            leader[root(place)] = root(first_with.setdefault(content, place))
    clusters: dict[int, list[_Outline]] = {}
    for place, outline in enumerate(outlines):
        clusters.setdefault(root(place), []).append(outline)
    return list(clusters.values())


@cache
def _hash_of_file(path: Path) -> str:
    return hash_file(path)


def _contents(row: Row) -> list[str]:
    """The contents that a row must not share with rows on the other side."""
    return [_content(medium) for medium in (*row.images, *row.videos)] or [row.question]


def _content(medium: ImageInput) -> str:
    if isinstance(medium, Path):
        return _hash_of_file(medium)
    return hashlib.sha256(encoded(medium)).hexdigest()
