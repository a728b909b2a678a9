"""The choice of held-out items that the report shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from rl_core.evaluation.comparison import pair_items
from rl_core.evaluation.items import EvaluationItem
from rl_core.randomness import keyed_seed


@dataclass(frozen=True, kw_only=True, slots=True)
class GalleryRow:
    """One item with the responses of both models. The images are looked up by their uids."""

    uid: str
    image_uids: tuple[str, ...]
    question: str
    answer: str
    base_response: str
    trained_response: str
    base_is_right: bool
    trained_is_right: bool


def pick_gallery(base: Sequence[EvaluationItem], trained: Sequence[EvaluationItem], *, count: int) -> list[GalleryRow]:
    """Choose at most `count` items. Two thirds are flipped items: alternately one that training lost and one that it
    gained, as long as there are both. The rest are alternately items that both models answered wrongly and items that
    both answered rightly. If there are too few items of one kind, the other kind takes their places. Which items of a
    kind are chosen depends on their uids alone, so that two runs show the same items. Raises ValueError when an item
    has several responses, or the two sets of items differ."""
    rows = sorted((_row(one, other) for one, other in pair_items(base, trained)), key=_keyed_order)
    flips = list(_by_turns(_of_kind(rows, base=True, trained=False), _of_kind(rows, base=False, trained=True)))
    steady = list(_by_turns(_of_kind(rows, base=False, trained=False), _of_kind(rows, base=True, trained=True)))
    first = flips[: max(count - count // 3, count - len(steady))]
    return [*first, *steady][:count]


def _row(base: EvaluationItem, trained: EvaluationItem) -> GalleryRow:
    return GalleryRow(
        uid=base.uid,
        image_uids=base.image_uids,
        question=base.question,
        answer=base.answer,
        base_response=base.response,
        trained_response=trained.response,
        base_is_right=base.is_right,
        trained_is_right=trained.is_right,
    )


def _keyed_order(row: GalleryRow) -> tuple[int, str]:
    return keyed_seed(0, "gallery", row.uid), row.uid


def _of_kind(rows: Iterable[GalleryRow], *, base: bool, trained: bool) -> list[GalleryRow]:
    return [row for row in rows if (row.base_is_right, row.trained_is_right) == (base, trained)]


def _by_turns(*kinds: Sequence[GalleryRow]) -> Iterable[GalleryRow]:
    return (row for row in chain.from_iterable(zip_longest(*kinds)) if row is not None)
