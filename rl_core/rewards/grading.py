"""The graders of the built-in rewards (`reward.grader`): whether two answers are equal.

A grader may compute for ever on an expression that the policy made up. The time limits of these libraries are switched
off here, because the scoring process has one already (docs/architecture.md, "Rewards are isolated") that covers every
cause and records the failed sample.
"""

import logging
from collections.abc import Callable

# A grader's library is imported when it is used: it loads sympy and a grammar, which takes about a second.


def mathruler_equal(given: str, truth: str) -> bool:
    """mathruler's `grade_answer`, with which EasyR1's numbers were published. Two answers are equal if they are the
    same after normalisation or if sympy simplifies their difference to 0. No numeric tolerance; "145°" is not "145"."""
    from mathruler.grader import grade_answer

    return bool(grade_answer(given, truth))


def math_verify_equal(given: str, truth: str) -> bool:
    r"""math-verify's `verify` with its defaults (six decimals); each answer is parsed as content of a `\boxed{}`."""
    from math_verify import parse, verify

    silence_limit_warning()
    boxed = (parse(f"\\boxed{{{answer}}}", parsing_timeout=None) for answer in (truth, given))
    return bool(verify(*boxed, timeout_seconds=None))


def silence_limit_warning() -> None:
    """Silence math-verify's warning that its own time limit is off; the scoring process has one."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)


_GRADERS: dict[str, Callable[[str, str], bool]] = {"mathruler": mathruler_equal, "math_verify": math_verify_equal}


def grader_named(name: str) -> Callable[[str, str], bool]:
    """The function `equal(given, truth)` with this name in `reward.grader`. Raises ValueError for an unknown name."""
    if name not in _GRADERS:
        raise ValueError(f"there is no grader {name!r}, just {' and '.join(_GRADERS)}")
    return _GRADERS[name]
