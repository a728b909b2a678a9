"""Held-out rows for a dataset that comes without any: a share of its rows, set apart once and for all."""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rl_core.files import files_named, hash_file
from rl_core.randomness import keyed_seed
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.local_files import find_reader
from rl_core.sources.media import with_files_checked
from rl_core.sources.rows import BadRow, ImageInput, Row
from rl_core.sources.shards import shards_pattern
from tasks.new_config.row_files import RowFile, encoded

HELD_OUT_NAMES = ("validation", "valid", "val", "test", "dev")
_SHARE = 0.1
_MOST = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """Rows of some data that cannot be used.

    Attributes:
        data: What the data is called.
        rows: The rows.
        total: How many rows the data has.
        is_read_again: A run reads them too; else they were left out.
    """

    data: str
    rows: Sequence[BadRow]
    total: int
    is_read_again: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Training and held-out rows.

    Attributes:
        train: Rows to train on.
        validation: Held-out rows.
        origin: In words, where they come from.
        unusable: Rows that cannot be used, of each of the data.
    """

    train: LocalSource | HubSource
    validation: LocalSource | HubSource
    origin: str
    unusable: Sequence[Unusable]


def find_split(path: Path) -> tuple[Path, Path] | None:
    """Training and held-out data that lie side by side by name: children of a folder, or `path` and its sibling. The
    shards of a split are one child, a path with a `*` in their place.

    Raises:
        ValueError: two children claim one of the names; names both.
    """
    given = set(files_named(path))
    folder = path if path.is_dir() else path.parent
    named = _data_by_name(folder)
    held_out = next((named[name] for name in HELD_OUT_NAMES if name in named), None)
    train = named.get("train") if path.is_dir() else [path]
    if train is None or held_out is None or any(given & set(files_named(child)) for child in held_out):
        return None
    return _only(train), _only(held_out)


def _data_by_name(folder: Path) -> dict[str, list[Path]]:
    """Readable children by the first word of their names, shards together."""
    named: dict[str, list[Path]] = {}
    for child in sorted(folder.iterdir()):
        claims = named.setdefault(re.split(r"[-_.]", child.name.lower(), maxsplit=1)[0], [])
        pattern = shards_pattern(child) if child.is_file() else None
        claim = pattern if pattern is not None and len(files_named(pattern)) > 1 else child
        if claim not in claims and is_data(child):
            claims.append(claim)
    return {name: claims for name, claims in named.items() if claims}


def is_data(child: Path) -> bool:
    """Whether a local source could read it: pictures and programs beside the rows are none."""
    try:
        find_reader(LocalSource(type="local", path=str(child)))
    except ValueError:
        return False
    return True


def _only(claims: Sequence[Path]) -> Path:
    if len(claims) > 1:
        raise ValueError(
            f"{' and '.join(map(str, claims))} have the same name at their beginning; say which of them is meant: "
            "sightline init DATA --validation HELD_OUT"
        )
    return claims[0]


def set_rows_apart(source: LocalSource | HubSource, folder: Path) -> Split:
    """Write train.parquet and validation.parquet into `folder`: about a tenth of the rows, at most 500, is held out.
    Every column goes with its row. Unusable rows are left out, and named in the result.

    Rows that share an image (or the question, where they have none) stay on one side, so that nothing held out is seen
    in training. Which side that is depends on their content alone.

    Raises:
        ValueError: there are no two rows that could be on different sides; says why.
    """
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
        name: RowFile(folder / f"{name}.parquet", extra=extra).write(_rows_of(source, chosen))
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
    """Every row of a source that cannot be used, as far as that is known without opening an image."""
    rows, total = [], 0
    for row in with_files_checked(source.open()):
        total += 1
        if isinstance(row, BadRow):
            rows.append(row)
    return Unusable(data=name_of(source), rows=rows, total=total, is_read_again=True)


def name_of(source: LocalSource | HubSource) -> str:
    """What a person called the data."""
    return source.path if isinstance(source, LocalSource) else source.name


class _Outline(NamedTuple):
    """What decides on which side a row may be: its number, its question, and what it shows."""

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
    """Rows that are linked by shared content, together."""
    leader = list(range(len(outlines)))  # a forest: each row points to one that it hangs together with

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


def _rows_of(source: LocalSource | HubSource, chosen: Collection[int]) -> Iterator[Row]:
    return (row for row in source.open() if isinstance(row, Row) and row.index in chosen)


@cache
def _hash_of_file(path: Path) -> str:
    return hash_file(path)


def _contents(row: Row) -> list[str]:
    """What a row must not share with one on the other side."""
    return [_content(medium) for medium in (*row.images, *row.videos)] or [row.question]


def _content(medium: ImageInput) -> str:
    if isinstance(medium, Path):
        return _hash_of_file(medium)
    return hashlib.sha256(encoded(medium)).hexdigest()
