"""Bars in a terminal, lines elsewhere."""

from io import StringIO

from rich.console import Console

from flows.bars import LogLines, TerminalBars


def test_a_log_gets_one_line_a_bar_with_the_newest_figures() -> None:
    text = StringIO()
    with LogLines(Console(file=text)).bar("train epoch 1", 3) as advance:
        advance(1, "reward 0.1")
        advance(2, "reward 0.2")
    assert text.getvalue() == "train epoch 1: 3/3 in 0 s reward 0.2\n"


def test_a_bar_that_breaks_off_says_how_far_it_came() -> None:
    text = StringIO()
    try:
        with LogLines(Console(file=text)).bar("train", 5) as advance:
            advance(2)
            raise KeyError
    except KeyError:
        pass
    assert text.getvalue().startswith("train: 2/5 in 0 s")


def test_a_terminal_keeps_a_finished_bar_and_drops_one_inside_it() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with TerminalBars(console) as bars, bars.bar("train epoch 1", 2) as advance:
        with bars.bar("validation", 9) as inner:
            inner(9)
        advance(2, "reward 0.5")
    last_frame = text.getvalue().rsplit("train epoch 1", 1)[1]
    assert "2/2" in last_frame and "reward 0.5" in last_frame
    assert "validation" not in last_frame
