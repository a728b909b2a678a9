import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.answers import answer_text, read_answer

PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NESTED = st.recursive(PLAIN | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
ANSWERS = PLAIN.filter(lambda value: not isinstance(value, str) or value.strip()) | NESTED.filter(
    lambda value: isinstance(value, list | dict)
)


@given(ANSWERS)
def test_an_answer_is_what_its_row_holds_and_its_text_says_it(value) -> None:
    answer = read_answer(value)
    assert repr(answer) == repr(value)
    text = answer_text(answer)
    assert text == value if isinstance(value, str) else repr(json.loads(text)) == repr(value)


@pytest.mark.parametrize("value", [None, "", " ", float("nan"), float("inf"), [float("nan")], {1, 2}, b"x", [b"x"]])
def test_what_is_no_answer_is_refused(value) -> None:
    with pytest.raises(ValueError, match="the answer"):
        read_answer(value)
