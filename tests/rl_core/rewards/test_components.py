from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.rewards.components import LARGEST, components_of
from rl_core.wording import plain_text

NAMES = st.text(min_size=1, max_size=100).filter(lambda name: len(plain_text(name)) <= 100)
NUMBERS = st.floats(-LARGEST, LARGEST)


@given(st.dictionaries(NAMES, NUMBERS), st.integers(-100, 100))
def test_finite_numbers_pass_as_floats(components, overall):
    result = components_of(MappingProxyType(components | {"overall": overall}))
    assert result == components | {"overall": overall}
    assert all(type(value) is float for value in result.values())


@pytest.mark.parametrize(
    "number",
    [1, True, 0.5, Fraction(1, 2), Decimal("0.5"), np.float32(0.25), np.int64(2), np.bool_(True), np.array(0.5)],
)
def test_a_bare_number_is_the_overall(number):
    assert components_of(number) == {"overall": float(number)}


@pytest.mark.parametrize(
    ("result", "named"),
    [
        (None, "NoneType"),
        ("0.5", "returned str"),
        (1j, "returned complex"),
        ([1.0], "list"),
        ({"accuracy": 1.0}, "no `overall`"),
        ({}, "no `overall`"),
        ({"overall": 1.0, "x": "1"}, "`x` is str"),
        ({"overall": None}, "`overall` is NoneType"),
        ({"overall": float("nan")}, "`overall` is nan"),
        ({"overall": 1, "x": float("-inf")}, "`x` is -inf"),
        ({"overall": 1, 2: 1.0}, "name 2 is int"),
        (float("inf"), "`overall` is inf"),
        ({"overall": np.array([1.0, 2.0])}, "`overall` is not a single number"),
        ({"overall": torch.ones(2)}, "`overall` is not a single number"),
        (10**400, "`overall` is not a single number"),
        (1e31, "`overall` is 1e\\+31, larger than 1e\\+30"),
        ({"overall": 1.0, "x": -1.7e308}, "`x` is -1.7e\\+308, larger than"),
        ({"overall": 1.0, "": 1.0}, "the component name ''... has 0 characters"),
        ({"overall": 1.0, "word " * 21: 1.0}, "name 'word word word word '... has 105 characters, not 1 to 100"),
    ],
)
def test_a_value_that_is_no_score_is_refused_by_name(result, named):
    with pytest.raises(ValueError, match=named):
        components_of(result)


def test_a_name_that_no_file_can_hold_is_spelt_out():
    names = list(components_of({"overall": 1.0, "half \ud83d": 0.0, "whole \U0001f600": 0.0}))
    assert names == ["overall", r"half \ud83d", "whole \U0001f600"]
