"""Held-out rows for a data set that has none: a share of its rows is set apart once and for all."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Self

from rl_core.data.inspection import spread_numbers
from rl_core.data.pixels import check_format
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
_READ_AGAIN = ("options_key", "answer_key", "answer_pattern", "answer_as", "class_names")
"""The keys by which a row is read in the file that it is written to, too."""

Shared = Literal["drop", "held-out", "train"]
"""What becomes of rows that share something across the split."""

_CHOICES: Mapping[Shared, str] = {
    "drop": "leaves training rows out",
    "held-out": "holds training rows out too",
    "train": "trains on held-out rows",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """Rows of some data that cannot be used, of `total` rows. Those that a run does not read again were left out."""

    data: str
    rows: Sequence[BadRow]
    total: int
    is_read_again: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Training and held-out rows, where they come from in words, the unusable rows of each of the data, how often each
    answer is there, by split, the number of rows without an image or a video, and some usable training rows from all
    parts of the data."""

    train: LocalSource | HubSource
    validation: LocalSource | HubSource
    origin: str
    unusable: Sequence[Unusable]
    answers: Mapping[str, Counter[str]]
    text_rows: int
    sample: Sequence[Row]


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
    in training. Each answer has the share of the held-out rows that it has of all rows, as far as that allows. Which
    rows they are depends on what the rows hold, and not on their order. Raises ValueError where no rows can be held
    out; the message says why."""
    survey = _Survey.of(source)
    held_out = _choose(survey.outlines, survey.bad)
    sides = {
        "train": [_Part(survey, [outline for outline in survey.outlines if outline.number not in held_out])],
        "validation": [_Part(survey, [outline for outline in survey.outlines if outline.number in held_out])],
    }
    files = {name: _write(parts, folder / f"{name}.parquet") for name, parts in sides.items()}
    return Split(
        **files,
        origin=f"{len(held_out)} of {len(survey.outlines)} usable rows were set apart in {folder}",
        unusable=[survey.unusable(is_read_again=False)],
        answers=_answers(sides),
        text_rows=sum(outline.is_text for outline in survey.outlines),
        sample=survey.sample,
    )


def take_pair(
    train: LocalSource | HubSource,
    validation: LocalSource | HubSource,
    *,
    origin: str,
    shared: Shared | None,
    folder: Path,
) -> Split:
    """Training and held-out rows as they are, where they share nothing. Otherwise rows are left out or moved, as
    `shared` says, and a side that changes is written into `folder`; if it is None, training rows are left out where at
    least half of them stay. Raises ValueError where fewer would, where a side would have no row, and where rows are to
    be moved to others that are read by other columns."""
    ours, theirs = _Survey.of(train), _Survey.of(validation)
    sides: _Sides = {"train": [_Part(ours, ours.outlines)], "validation": [_Part(theirs, theirs.outlines)]}
    if common := _sharing(ours.outlines, theirs.outlines):
        what = (
            f"{len(common)} of {len(ours.outlines)} row(s) of {name_of(train)} share an image or a video with a "
            f"held-out row of {name_of(validation)}, or ask the same without any (the first is row {common[0].number})"
        )
        choices = {choice: _without_shared(choice, ours, theirs) for choice in _CHOICES}
        if shared is None and 2 * len(common) <= len(ours.outlines):
            shared = "drop"
        effects = {
            choice: f"--shared {choice} {does}: {_size(choices[choice], 'train')} row(s) to train on, "
            f"{_size(choices[choice], 'validation')} held out"
            for choice, does in _CHOICES.items()
        }
        if shared is None:
            raise ValueError(f"{what}; held-out rows must be unseen: {'; '.join(effects.values())}")
        sides = choices[shared]
        others = "; ".join(words for choice, words in effects.items() if choice != shared)
        if not all(_size(sides, name) for name in sides):
            raise ValueError(f"{what}; {effects[shared]}; {others}; --validation names other held-out rows")
        origin += f"; {what}; {effects[shared]} (instead, {others})"
    sources: dict[str, LocalSource | HubSource] = {"train": train, "validation": validation}
    written = {
        name: _write(parts, folder / f"{name}.parquet")
        for name, parts in sides.items()
        if len(parts) > 1 or len(parts[0].outlines) < len(parts[0].survey.outlines)
    }
    return Split(
        **{**sources, **written},
        origin=origin,
        unusable=[
            ours.unusable(is_read_again="train" not in written),
            theirs.unusable(is_read_again="validation" not in written),
        ],
        answers=_answers(sides),
        text_rows=sum(outline.is_text for parts in sides.values() for part in parts for outline in part.outlines),
        sample=ours.sample,
    )


def _without_shared(choice: Shared, ours: "_Survey", theirs: "_Survey") -> "_Sides":
    """Training rows (`ours`) and held-out ones that share nothing. Rows that are moved take along those of their side
    that share something with them."""
    all_ours, all_theirs = _Part(ours, ours.outlines), _Part(theirs, theirs.outlines)
    if choice == "drop":
        return {"train": [all_ours.without(_sharing(ours.outlines, theirs.outlines))], "validation": [all_theirs]}
    if choice == "held-out":
        moved = _sharing(ours.outlines, theirs.outlines, linked=True)
        return {"train": [all_ours.without(moved)], "validation": [all_theirs, _Part(ours, moved)]}
    moved = _sharing(theirs.outlines, ours.outlines, linked=True)
    return {"train": [all_ours, _Part(theirs, moved)], "validation": [all_theirs.without(moved)]}


def _sharing(
    outlines: Sequence["_Outline"], others: Sequence["_Outline"], *, linked: bool = False
) -> Sequence["_Outline"]:
    """The rows that share something with one of the `others`, with `linked` also through other rows among them."""
    seen = {content for outline in others for content in outline.contents}
    clusters = _clusters(outlines) if linked else [[outline] for outline in outlines]
    return [
        outline
        for cluster in clusters
        if any(not seen.isdisjoint(one.contents) for one in cluster)
        for outline in cluster
    ]


def _size(sides: "_Sides", name: str) -> int:
    return sum(len(part.outlines) for part in sides[name])


def _write(parts: Sequence["_Part"], path: Path) -> LocalSource:
    first, *others = (part.survey.source for part in parts)
    for other in others:
        if any(getattr(other.columns, key) != getattr(first.columns, key) for key in _READ_AGAIN):
            raise ValueError(
                f"rows of {name_of(other)} cannot be moved to those of {name_of(first)}, because their answers are "
                "read by other columns: --shared drop leaves them out"
            )
    extra = dict.fromkeys(name for part in parts for name in part.survey.extra)
    return RowFile(path, extra=extra, columns=first.columns).write(row for part in parts for row in part.rows())


def _answers(sides: "_Sides") -> dict[str, Counter[str]]:
    return {
        name: Counter(outline.answer for part in parts for outline in part.outlines) for name, parts in sides.items()
    }


class _Outline(NamedTuple):
    """What decides on which side a row may be: its number, its question, its answer, and what it must not share with
    rows on the other side: hashes of its images and videos or, where it `is_text`, the conversation."""

    number: int
    question: str
    answer: str
    contents: Sequence[str]
    is_text: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Survey:
    """The usable rows of a source and the others, as far as they are known without decoding images; the names of all
    further columns; and some usable rows from all parts."""

    source: LocalSource | HubSource
    outlines: Sequence[_Outline]
    bad: Sequence[BadRow]
    extra: Collection[str]
    sample: Sequence[Row]

    @classmethod
    def of(cls, source: LocalSource | HubSource) -> Self:
        outlines: list[_Outline] = []
        bad: list[BadRow] = []
        extra: dict[str, None] = {}
        sample: list[Row] = []
        reader = source.open()
        sampled = spread_numbers(reader.row_count)
        for row in map(_with_formats_checked, with_files_checked(reader)):
            if isinstance(row, BadRow):
                bad.append(row)
            else:
                outlines.append(_outline(row))
                extra.update(dict.fromkeys(row.extra))
                sample += [row] * (row.index in sampled)
        return cls(source=source, outlines=outlines, bad=bad, extra=extra, sample=sample)

    def unusable(self, *, is_read_again: bool) -> Unusable:
        total = len(self.bad) + len(self.outlines)
        return Unusable(data=name_of(self.source), rows=self.bad, total=total, is_read_again=is_read_again)


class _Part(NamedTuple):
    """Some of the rows of a source."""

    survey: _Survey
    outlines: Sequence[_Outline]

    def without(self, outlines: Sequence[_Outline]) -> Self:
        gone = {outline.number for outline in outlines}
        return self._replace(outlines=[outline for outline in self.outlines if outline.number not in gone])

    def rows(self) -> Iterator[Row]:
        chosen = {outline.number for outline in self.outlines}
        return (row for row in self.survey.source.open() if isinstance(row, Row) and row.index in chosen)


_Sides = Mapping[str, Sequence[_Part]]
"""["train" or "validation"] -> where its rows come from."""


def name_of(source: LocalSource | HubSource) -> str:
    """The name by which the user called the data."""
    return source.path if isinstance(source, LocalSource) else source.name


def _choose(outlines: Sequence[_Outline], bad: Sequence[BadRow]) -> set[int]:
    """Numbers of the rows to hold out. Raises ValueError where nothing would be left to train on."""
    first = f"; the first of {len(bad)} unusable row(s): {bad[0]}" if bad else ""
    if not outlines:
        raise ValueError(f"no row can be used{first}")
    clusters = sorted(_clusters(outlines), key=_rank)
    if len(clusters) == 1:
        raise ValueError(
            f"none of the {len(outlines)} usable row(s) can be held out, because all of them share an image, a video "
            f"or a question; name held-out data with --validation{first}"
        )
    wanted = max(1, min(_MOST, int(len(outlines) * _SHARE)))
    quotas = _quotas(Counter(outline.answer for outline in outlines), wanted)
    chosen: set[int] = set()
    for cluster in clusters:  # first those with which every answer keeps its share
        answers = Counter(outline.answer for outline in cluster)
        if all(quotas[answer] >= count for answer, count in answers.items()):
            quotas.subtract(answers)
            chosen |= {outline.number for outline in cluster}
    for cluster in clusters:
        if len(chosen) < wanted and len(chosen) + len(cluster) <= 2 * wanted:
            chosen |= {outline.number for outline in cluster}
    return chosen or {outline.number for outline in min(clusters, key=len)}


def _rank(cluster: Sequence[_Outline]) -> int:
    """A random number that belongs to what the rows hold."""
    return keyed_seed(0, "held-out", *sorted(repr((*outline[1:],)) for outline in cluster))


def _quotas(counts: Counter[str], wanted: int) -> Counter[str]:
    """How many rows of each answer are `wanted`: its share of all rows, rounded so that the sum is right."""
    total = counts.total()
    quotas = Counter({answer: count * wanted // total for answer, count in counts.items()})
    remainders = {answer: count * wanted % total for answer, count in counts.items()}
    by_remainder = sorted(counts, key=lambda answer: (-remainders[answer], keyed_seed(0, "held-out answer", answer)))
    quotas.update(by_remainder[: wanted - quotas.total()])
    return quotas


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


def _with_formats_checked(row: Row | BadRow) -> Row | BadRow:
    if isinstance(row, BadRow):
        return row
    try:
        for image in row.images:
            check_format(image)
    except ValueError as error:
        return row.as_bad(row.image_column, str(error))
    return row


_hash_of_file = cache(hash_file)


def _outline(row: Row) -> _Outline:
    shown = [_content(medium) for medium in (*row.images, *row.videos)]
    asked = repr([*(turn.content for turn in row.history), row.question])
    return _Outline(row.index, row.question, row.answer_text, shown or [asked], is_text=not shown)


def _content(medium: ImageInput) -> str:
    if isinstance(medium, Path):
        return _hash_of_file(medium)
    return hashlib.sha256(encoded(medium)).hexdigest()
