"""The order of the rows in an epoch: shuffled, mixed from weighted sources, from easy to hard.

Every order is a function of the run's seed and the epoch alone, so a loader that knows its epoch and its place in the
epoch continues exactly.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from rl_core.digests import digest_of
from rl_core.randomness import keyed_seed
from rl_core.types import Float64Array, Int64Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Shuffle:
    """Permutations keyed by the run's seed; if not `enabled`, rows keep their order."""

    seed: int
    enabled: bool

    def permutation(self, size: int, *key: int | str) -> Int64Array:
        """[size] a permutation of the numbers below `size`."""
        if not self.enabled:
            return np.arange(size)
        # Raw draws are sorted, because numpy promises stable bits of PCG64 between versions, but not stable
        # permutations.
        draws = np.random.PCG64(keyed_seed(self.seed, "shuffle", *key)).random_raw(size)
        return np.argsort(draws, kind="stable")


def weighted_order(
    members: Mapping[str, Int64Array],
    weights: Mapping[str, float],
    *,
    batches: int,
    batch_size: int,
    epoch: int,
    shuffle: Shuffle,
    ranks: Float64Array | None,
) -> Int64Array:
    """[batches * batch_size] rows of an epoch, in which every batch has rows of each source (`members`) in proportion
    to its weight, those of a source by rising rank.

    If an epoch takes fewer rows of a source than there are, the next epoch continues where it stopped. If it takes
    more, every row comes once before any row comes again. No batch has a row twice. Raises ValueError where a source
    has fewer rows than its share of a batch.
    """
    names = sorted(members)
    sources = _interleaved([weights[name] for name in names], batches * batch_size)
    order = np.empty(len(sources), np.int64)
    for number, name in enumerate(names):
        slots = np.flatnonzero(sources == number)
        per_batch = np.bincount(slots // batch_size, minlength=batches)
        if per_batch.max() > len(members[name]):
            raise ValueError(
                f"data.source_weights asks {name!r} for {per_batch.max()} of the {batch_size} rows of a batch, and it "
                f"has {len(members[name])}: lower its weight or data.rollout_batch_size, or give it more rows"
            )
        order[slots] = _drawn(members[name], per_batch, name=name, epoch=epoch, shuffle=shuffle, ranks=ranks)
    return order


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The order of rows beyond shuffling: the weights of their data sources in every batch, and [rows] a curriculum's
    ranks, of which lower ones come earlier. Without weights each row comes once in an epoch. Raises ValueError unless
    the weights name the data sources."""

    data_sources: Sequence[str]
    source_weights: Mapping[str, float] | None = None
    ranks: Float64Array | None = None

    def __post_init__(self) -> None:
        if self.source_weights is not None:
            check_source_weights(self.source_weights, self.data_sources)

    def order(self, *, batches: int, batch_size: int, epoch: int, shuffle: Shuffle) -> Int64Array:
        """[batches * batch_size] rows of an epoch."""
        if self.source_weights is None:
            rows = shuffle.permutation(len(self.data_sources), epoch)
            return _by_rank(rows[: batches * batch_size], self.ranks)  # the shuffle decides which ones are left out
        names = np.array(self.data_sources)
        return weighted_order(
            {name: np.flatnonzero(names == name) for name in self.source_weights},
            self.source_weights,
            batches=batches,
            batch_size=batch_size,
            epoch=epoch,
            shuffle=shuffle,
            ranks=self.ranks,
        )

    def settings(self) -> dict[str, Any]:
        """The settings that a saved place in this order depends on, as JSON values."""
        weights = None if self.source_weights is None else dict(self.source_weights)
        return {"source_weights": weights, "ranks": None if self.ranks is None else digest_of(self.ranks.tolist())}


def check_source_weights(weights: Mapping[str, float], data_sources: Sequence[str]) -> None:
    """Raises ValueError unless the weights name exactly the data sources of the training rows."""
    missing, unknown = sorted(set(data_sources) - set(weights)), sorted(set(weights) - set(data_sources))
    if missing or unknown:
        raise ValueError(
            f"data.source_weights must name every data source of the training rows and no other: {missing} have no "
            f"weight, {unknown} are not among the rows"
        )


def check_weighted_batches(weights: Mapping[str, float], rows: Mapping[str, int], *, batch_size: int) -> None:
    """Raises ValueError unless the weights name exactly the data sources of `rows` (numbers by name), and each has
    enough rows for its share of a batch."""
    names = [name for name, count in rows.items() for _ in range(count)]
    arrangement = Arrangement(data_sources=names, source_weights=weights)
    in_order = Shuffle(seed=0, enabled=False)  # the shares of a batch do not depend on the shuffle
    arrangement.order(batches=len(names) // batch_size, batch_size=batch_size, epoch=0, shuffle=in_order)


def _interleaved(weights: Sequence[float], slots: int) -> Int64Array:
    """[slots] the number of the source of each slot, spread evenly over the epoch."""
    counts = _shares(weights, slots)
    # Row j of the c rows of a source is placed in the middle of part j of c equal parts of the epoch.
    places = np.concatenate([(np.arange(number) + 0.5) / max(number, 1) for number in counts])
    return np.repeat(np.arange(len(counts)), counts)[np.argsort(places, kind="stable")]


def _shares(weights: Sequence[float], slots: int) -> Int64Array:
    """`slots` divided in proportion to the weights, rounded by the method of largest remainders."""
    exact = np.array(weights, np.float64) / sum(weights) * slots
    counts = np.floor(exact).astype(np.int64)
    remainders = np.argsort(counts - exact, kind="stable")
    counts[remainders[: slots - counts.sum()]] += 1
    return counts


def _drawn(
    rows: Int64Array, per_batch: Int64Array, *, name: str, epoch: int, shuffle: Shuffle, ranks: Float64Array | None
) -> Int64Array:
    """[sum of per_batch] rows of one source for one epoch."""
    wanted = int(per_batch.sum())
    if wanted == 0:
        return np.empty(0, np.int64)
    if wanted <= len(rows):
        # A permutation is used for as many epochs as it has rows for.
        cycle, part = divmod(epoch, len(rows) // wanted)
        order = shuffle.permutation(len(rows), name, cycle)
        return _by_rank(rows[order[part * wanted : (part + 1) * wanted]], ranks)
    passes = (_by_rank(rows[shuffle.permutation(len(rows), name, epoch, number)], ranks) for number in count())
    return np.array(_without_repeats((row for one in passes for row in one.tolist()), per_batch), np.int64)


def _without_repeats(stream: Iterator[int], per_batch: Int64Array) -> list[int]:
    """The stream in batches; a row that is already in a batch waits for the next batch."""
    taken: list[int] = []
    waiting: list[int] = []
    for size in per_batch.tolist():
        batch, waiting = dict.fromkeys(waiting[:size]), waiting[size:]
        while len(batch) < size:
            row = next(stream)
            if row in batch:
                waiting.append(row)
            else:
                batch[row] = None
        taken += batch
    return taken


def _by_rank(rows: Int64Array, ranks: Float64Array | None) -> Int64Array:
    return rows if ranks is None else rows[np.argsort(ranks[rows], kind="stable")]
