from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.repeated import Vote, majority_at_k, pass_at_k, sample_counts

small = st.integers(1, 7).flatmap(
    lambda n: st.tuples(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=5), st.just(n))
)


@given(small, st.data())
def test_pass_at_k_is_the_mean_over_all_choices_of_k_responses(items: tuple, data: st.DataObject) -> None:
    grades, n = items
    k = data.draw(st.integers(1, n))
    expected = fmean(fmean(any(chosen) for chosen in combinations(item, k)) for item in grades)
    assert pass_at_k([sum(item) for item in grades], n=n, k=k) == pytest.approx(expected, abs=1e-12)


@given(small)
def test_pass_at_1_is_the_accuracy_and_it_rises_with_k(items: tuple) -> None:
    grades, n = items
    right = [sum(item) for item in grades]
    shares = [pass_at_k(right, n=n, k=k) for k in range(1, n + 1)]
    assert shares[0] == pytest.approx(fmean(sum(item) / n for item in grades))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(fmean(any(item) for item in grades))


def votes(text: str, right: str) -> list[Vote]:
    """A vote a letter; "." answers nothing."""
    return [Vote(answer=None if letter == "." else letter, is_right=letter == right) for letter in text]


@pytest.mark.parametrize(
    ("answers", "k", "share"),
    [
        ("aab", 3, 1.0),
        ("bba", 3, 0.0),
        ("ab", 2, 1.0),  # a tie goes to the earlier answer
        ("ba", 2, 0.0),
        ("..a", 3, 1.0),  # no answer, no vote
        ("...", 3, 0.0),
        ("aabb", 2, 0.5),  # two blocks of two
        ("aabbb", 2, 0.5),  # the rest fills no block
        ("ab", 1, 0.5),
    ],
)
def test_majorities_by_hand(answers: str, k: int, share: float) -> None:
    assert majority_at_k([votes(answers, "a")], k=k) == share


def test_majority_at_k_is_the_mean_over_items() -> None:
    assert majority_at_k([votes("aab", "a"), votes("abb", "a")], k=3) == 0.5


@pytest.mark.parametrize(("n", "counts"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])])
def test_the_counts_reported_are_powers_of_two_and_n(n: int, counts: list[int]) -> None:
    assert sample_counts(n) == counts


@pytest.mark.parametrize(("right", "n", "k"), [([], 2, 1), ([1], 2, 3), ([1], 2, 0), ([3], 2, 1)])
def test_impossible_numbers_are_refused(right: list[int], n: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(right, n=n, k=k)
    with pytest.raises(ValueError, match="majority@"):
        majority_at_k([], k=1)
    with pytest.raises(ValueError, match="majority@3"):
        majority_at_k([votes("ab", "a")], k=3)
