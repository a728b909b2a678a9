from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.gallery import GalleryRow, pick_gallery
from tests.rl_core.evaluation.builders import make_items

grades = st.lists(st.sampled_from(["++", "+-", "-+", "--"]), min_size=1, max_size=40)


def gallery(pairs: list[str], count: int) -> list[GalleryRow]:
    base, trained = make_items("".join(p[0] for p in pairs)), make_items("".join(p[1] for p in pairs), response="new")
    return pick_gallery(base, trained, count=count)


def kinds(rows: list[GalleryRow]) -> Counter:
    return Counter("+-"[not row.base_is_right] + "+-"[not row.trained_is_right] for row in rows)


def test_flips_come_first_and_failures_are_not_hidden() -> None:
    pairs = ["-+"] * 30 + ["+-"] * 3 + ["--"] * 5 + ["++"] * 20
    rows = gallery(pairs, 12)
    assert kinds(rows) == {"-+": 5, "+-": 3, "--": 2, "++": 2}
    assert all(row.base_is_right != row.trained_is_right for row in rows[:8])


@given(grades, st.integers(0, 50))
def test_as_many_rows_as_asked_for_as_long_as_there_are_items(pairs: list[str], count: int) -> None:
    rows = gallery(pairs, count)
    assert len(rows) == len({row.uid for row in rows}) == min(count, len(pairs))
    flips = sum(pair in ("+-", "-+") for pair in pairs)
    assert kinds(rows)["+-"] + kinds(rows)["-+"] >= min(flips, count - count // 3)


@given(grades, st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(pairs: list[str], shuffle) -> None:
    base, trained = make_items("".join(p[0] for p in pairs)), make_items("".join(p[1] for p in pairs))
    expected = pick_gallery(base, trained, count=9)
    shuffle.shuffle(base)
    shuffle.shuffle(trained)
    assert pick_gallery(base, trained, count=9) == expected


def test_a_row_holds_both_answers() -> None:
    (row,) = gallery(["-+"], 5)
    assert row == GalleryRow(
        uid="p0",
        image_uids=("i0",),
        question="How many?",
        answer="3",
        base_response="<answer>3</answer>",
        trained_response="new",
        base_is_right=False,
        trained_is_right=True,
    )
