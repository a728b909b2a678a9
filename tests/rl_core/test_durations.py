"""Durations read as a person says them."""

from datetime import timedelta

import pytest

from rl_core.wording import age, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (9.96, "10.0 s"),
        (42.4, "42 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_read_as_a_person_says_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("since", "text"),
    [
        (timedelta(seconds=-3), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=59.9), "59 min"),
        (timedelta(hours=30), "30 h"),
        (timedelta(days=20), "20 days"),
        (timedelta(days=21), "3 weeks"),
    ],
)
def test_ages_read_as_a_person_says_them(since, text):
    assert age(since) == text
