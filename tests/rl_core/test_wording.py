"""Values as messages repeat them."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.wording import MOST_SHOWN, shortened


@given(st.text(max_size=3 * MOST_SHOWN))
def test_whatever_is_repeated_is_one_short_line(text):
    shown = shortened(text)
    assert shown.isprintable()
    assert len(shown) <= 10 * MOST_SHOWN + 40
    if text.isprintable() and len(text) <= MOST_SHOWN:
        assert shown == text
