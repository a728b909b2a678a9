"""Whether two answers say the same: the graders that the built-in rewards choose from (`reward.grader`).

A grader may think for ever about an expression that a policy made up. Neither has a limit of its own here: the scoring
process has one (docs/architecture.md, "Rewards are isolated"), which is exact, holds for every cause, and records the
sample that it cost.
"""

import logging
from collections.abc import Callable

# A grader is imported when it is used: each loads sympy and a grammar, a second that `count` need not spend.


def mathruler_equal(given: str, truth: str) -> bool:
    """mathruler's `grade_answer`, the grader of EasyR1's published numbers: equal after normalisation, or a difference
    that sympy simplifies to 0. No numeric tolerance; "145°" is not "145"."""
    from mathruler.grader import grade_answer

    return bool(grade_answer(given, truth))


def math_verify_equal(given: str, truth: str) -> bool:
    r"""math-verify's `verify` with its defaults (six decimals), each answer read as the content of a `\boxed{}`."""
    from math_verify import parse, verify

    silence_limit_warning()
    boxed = (parse(f"\\boxed{{{answer}}}", parsing_timeout=None) for answer in (truth, given))
    return bool(verify(*boxed, timeout_seconds=None))


def silence_limit_warning() -> None:
    """math-verify warns that it runs without its alarm; what it should be replaced by is there already."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)


_GRADERS: dict[str, Callable[[str, str], bool]] = {"mathruler": mathruler_equal, "math_verify": math_verify_equal}


def grader_named(name: str) -> Callable[[str, str], bool]:
    """`equal(given, truth)` by the name in `reward.grader`. Raises ValueError for another name."""
    if name not in _GRADERS:
        raise ValueError(f"there is no grader {name!r}, just {' and '.join(_GRADERS)}")
    return _GRADERS[name]
