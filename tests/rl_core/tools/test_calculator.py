"""The calculator computes arithmetic and nothing else, in no time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.tools.builtin.calculator import calculator

NUMBERS = st.integers(-10_000, 10_000).map(str) | st.floats(-1e6, 1e6, allow_nan=False).map(repr)
EXPRESSIONS = st.recursive(
    NUMBERS, lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({''.join(parts)})"),
    max_leaves=8,
)  # fmt: skip


@given(expression=EXPRESSIONS)
def test_it_agrees_with_python(expression: str) -> None:
    assert float(calculator(expression)) == pytest.approx(float(eval(expression)), rel=1e-9)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2 ^ 10", "1024"), ("sqrt(16) / 3", f"{4 / 3:.12g}"), ("7 // 2 % 2", "1"), ("sin(pi/2)", "1"), ("-3", "-3")],
)
def test_what_models_write(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        *("", "1 +", "one", "True", "[1]", "'a' * 9", "1/0", "(-8) ** 0.5", "sqrt(-1)", "min()", "round(1, ndigits=1)"),
        *("9 ** 9 ** 9", "2 ** 99999", "10 ** 1000 * 10 ** 1000", "(" * 300 + ")" * 300, "1" * 501, "-" * 400 + "1"),
        *("__import__('os')", "().__class__", "(lambda: 1)()", "exp(1e9)", "10.0 ** 400"),
    ],
)
def test_a_mistake_is_a_sentence(expression: str) -> None:
    if expression == "-" * 400 + "1":
        assert math.isfinite(float(calculator(expression)))
        return
    with pytest.raises(ValueError, match=r"\w"):
        calculator(expression)
