"""What of the rewards' prints is passed on."""

import os

from hypothesis import given
from hypothesis import strategies as st

from rl_core.rewards.printed import MOST_BYTES, PERIOD_SECONDS, Allowance, Printer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.integers(0, MOST_BYTES), st.floats(0, PERIOD_SECONDS / 2)), max_size=20))
def test_no_period_passes_on_more_than_its_share_and_every_cut_is_told_once(prints: list[tuple[int, float]]) -> None:
    clock = Clock()
    allowance = Allowance(clock)
    began, printed, passed = clock.now, 0, b""
    for size, pause in prints:
        clock.now += pause
        if clock.now - began >= PERIOD_SECONDS:
            began, printed, passed = clock.now, 0, b""
        printed += size
        passed += allowance.cut(b"x" * size)
        assert passed.count(b"x") == min(printed, MOST_BYTES)
        assert passed.count(b"left out") == (printed > MOST_BYTES)


def test_a_printer_writes_in_order_and_ends_with_its_reader() -> None:
    reading, writing = os.pipe()
    printer = Printer(writing)
    for part in (b"one ", b"two ", b"three"):
        printer.take(part)
    printer.close()
    assert os.read(reading, 100) == b"one two three"
    os.close(reading)
    printer = Printer(writing)
    printer.take(b"nobody reads this")
    printer.close()
    os.close(writing)
