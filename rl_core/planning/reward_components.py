"""The components that the built-in rewards return; a test compares them with what the functions do."""

from collections.abc import Iterator, Mapping
from typing import Final

from rl_core.config.reward import RewardChoice, RewardTerm

_JUDGED: Final = ("overall", "accuracy", "format")

COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "choice": _JUDGED,
    "count": _JUDGED,
    "dapo": ("overall", "accuracy", "accuracy_normalized", "overlong"),
    "format": ("overall",),
    "geoqa": _JUDGED,
    "length": ("overall",),
    "math": _JUDGED,
    "overlong": ("overall",),
    "r1v": _JUDGED,
    "repetition": ("overall",),
}

OVERALL: Final = "overall"


def components_of(choice: RewardChoice) -> tuple[str, ...] | None:
    """Every component that a choice returns; None where that depends on a user's function."""
    if any(term.function not in COMPONENTS for term in choice.terms):
        return None
    if choice.function is not None:
        return COMPONENTS[choice.function]
    return tuple(dict.fromkeys([OVERALL, *_of_mixture(choice.mixture)]))


def _of_mixture(terms: tuple[RewardTerm, ...]) -> Iterator[str]:
    """The components of the first term keep their names; the components of the others, and every `overall`, get the
    name of their term as a prefix."""
    for place, term in enumerate(terms):
        for name in COMPONENTS[term.function]:
            yield name if place == 0 and name != OVERALL else f"{term.label}/{name}"
