"""Values as messages repeat them."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.wording import MOST_SHOWN, exit_words, shortened


@given(st.text(max_size=3 * MOST_SHOWN))
def test_whatever_is_repeated_is_one_short_line(text):
    shown = shortened(text)
    assert shown.isprintable()
    assert len(shown) <= 10 * MOST_SHOWN + 40
    if text.isprintable() and len(text) <= MOST_SHOWN:
        assert shown == text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit code 0"),
        (143, "exit code 143"),
        (-signal.SIGSEGV, "signal SIGSEGV"),
        (-(signal.SIGRTMIN + 3), f"signal {signal.SIGRTMIN + 3}"),  # it has no name
    ],
)
def test_an_exit_status_is_told_in_words(status, words):
    assert exit_words(status) == words
