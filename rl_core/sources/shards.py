"""Shards: files that each hold a part of a split, such as `train-00000-of-00003.parquet`."""

import itertools
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d+)-of-(?P<count>\d+)(?P<ending>\.\w+)", re.ASCII)
_NAMED = 5


def shards_pattern(file: Path) -> Path | None:
    """The pattern that matches a shard and its siblings, for the `path` of a local source; None for any other file."""
    match = _SHARD.fullmatch(file.name)
    return match and file.with_name(f"{match['split']}-*-of-{match['count']}{match['ending']}")


def check_shards(files: Sequence[Path]) -> None:
    """Raises ValueError where the shards among the files of a folder belong to several splits, so that held-out rows
    would be trained on, are there twice, in different numbers of shards, or are not all there."""
    shards = [match for file in files if (match := _SHARD.fullmatch(file.name))]
    splits = sorted({shard["split"] for shard in shards})
    if len(splits) > 1:
        pattern = files[0].with_name(f"{splits[0]}-*{shards[0]['ending']}")
        raise ValueError(f"these are the splits {', '.join(splits)}; read one of them with path: {pattern}")
    counts = sorted({shard["count"] for shard in shards}, key=int)
    if len(counts) > 1:
        raise ValueError(
            f"{splits[0]} is there in {' and in '.join(counts)} shards, so its rows would be read twice; read one set "
            f"with path: {shards_pattern(files[0].with_name(shards[0].string))}"
        )
    if shards:
        _check_complete({int(shard["number"]) for shard in shards}, shards[0])


def check_splits(files: Iterable[Path]) -> None:
    """`check_shards` for each folder and split by itself."""
    groups: dict[tuple[Path, str], list[Path]] = {}
    for file in files:
        if match := _SHARD.fullmatch(file.name):
            groups.setdefault((file.parent, match["split"]), []).append(file)
    for group in groups.values():
        check_shards(group)


def _check_complete(found: set[int], shard: re.Match[str]) -> None:
    """Raises ValueError where a number is missing among the siblings of a shard, or is out of their range."""
    count, width = int(shard["count"]), len(shard["number"])
    first = 1 if 0 not in found and count in found else 0  # some tools count from 1
    if strays := sorted(number for number in found if not first <= number < first + count):
        raise ValueError(f"{shard['split']} has {count} shards by its names, and there is a number {strays[0]}")
    missing = (number for number in itertools.count(first) if number not in found)
    how_many = count - len(found)
    if how_many == 0:
        return
    named = [f"{shard['split']}-{n:0{width}}-of-{shard['count']}{shard['ending']}" for n in islice(missing, _NAMED)]
    names = ", ".join(named[:how_many]) + (", ..." if how_many > _NAMED else "")
    raise ValueError(
        f"{how_many} of {count} shards of {shard['split']} are missing: {names}; fetch them, or name a single file to "
        "read no more than that"
    )
