import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.answers import answer_text, read_answer
from rl_core.sources.rows import json_value

PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NESTED = st.recursive(PLAIN | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
ANSWERS = PLAIN.filter(lambda value: not isinstance(value, str) or value.strip()) | NESTED.filter(
    lambda value: isinstance(value, list | dict)
)


@given(ANSWERS)
def test_an_answer_is_what_its_row_holds_and_its_text_says_it(value):
    answer = read_answer(value)
    assert repr(answer) == repr(value)
    text = answer_text(answer)
    assert text == value if isinstance(value, str) else repr(json.loads(text)) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("3.50"), "3.50"),
        (Decimal("4.00"), "4.00"),
        (Decimal("3.5000000"), "3.5"),
        (Decimal("4.000"), "4"),
        (Decimal("-0.125"), "-0.125"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1200"), "1200"),
        (date(2026, 11, 25), "2026-11-25"),
        (datetime(2026, 11, 25), "2026-11-25"),
        (datetime(2026, 11, 25, tzinfo=UTC), "2026-11-25"),
        (datetime(2026, 11, 25, 14), "2026-11-25 14:00"),
        (datetime(2026, 11, 25, 14, 30, 5), "2026-11-25 14:30:05"),
        (datetime(2026, 11, 25, 14, 30, tzinfo=timezone(timedelta(hours=2))), "2026-11-25 14:30+02:00"),
        (time(14, 30), "14:30"),
        (time(0, 0, 5), "00:00:05"),
        (timedelta(minutes=90), "1:30:00"),
    ],
)
def test_decimals_and_times_are_texts_as_a_person_writes_them(value, text):
    assert read_answer(value) == text
    assert read_answer({"a": [value]}) == {"a": [text]} == json_value({"a": (value,)})


@pytest.mark.parametrize(
    "value",
    [None, "", " ", float("nan"), float("inf"), Decimal("nan"), Decimal("inf"), [float("nan")], {1, 2}, b"x", [b"x"]],
)
def test_a_value_that_is_no_answer_is_refused(value):
    with pytest.raises(ValueError, match="the answer"):
        read_answer(value)
