"""Bars in a terminal, lines elsewhere."""

from contextlib import suppress
from io import StringIO
from threading import Event

import pytest
from rich.console import Console
from rich.text import Text

from flows.process.bars import LogLines, TerminalBars
from rl_core.progress import Now


def test_a_log_gets_one_line_a_bar_with_the_newest_figures() -> None:
    text = StringIO()
    with LogLines(Console(file=text)).bar("train epoch 1", 3) as advance:
        advance(1, "reward 0.1")
        advance(2, "reward 0.2")
    assert text.getvalue() == "train epoch 1: 3/3 in 0 s reward 0.2\n"


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


@pytest.fixture
def _everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.process.bars._SHORT_SECONDS", 0.0)


@pytest.mark.usefixtures("_everything_is_long")
def test_a_log_says_what_is_waited_for_while_it_is_and_how_long_it_took() -> None:
    text = StringIO()
    printed = Event()
    console = Console(file=text)
    print_line = console.print
    console.print = lambda *words, **options: (print_line(*words, **options), printed.set())
    with LogLines(console).wait("start the engine"):
        assert printed.wait(30)
        assert text.getvalue() == "start the engine ...\n"
    assert text.getvalue().splitlines()[1:] == ["start the engine: 0 s"]


def test_a_short_wait_is_no_line_in_a_log() -> None:
    text = StringIO()
    with LogLines(Console(file=text)).wait("look at the data"):
        pass
    assert text.getvalue() == ""


@pytest.mark.usefixtures("_everything_is_long")
@pytest.mark.parametrize("error", [None, KeyError])
def test_a_terminal_shows_a_wait_inside_a_bar_and_then_how_long_it_took(error: type[Exception] | None) -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with suppress(KeyError), TerminalBars(console) as bars, bars.bar("train epoch 1", 2) as advance:
        with bars.wait("start the engine"):
            bars._bars.refresh()
            shown = text.getvalue()
            if error:
                raise error
        advance(2)
    assert "start the engine" in shown.rsplit("train epoch 1", 1)[1]
    assert "start the engine: 0 s" in text.getvalue()
    assert "start the engine" not in text.getvalue().rsplit("train epoch 1", 1)[1]


def test_a_terminal_says_below_its_bars_what_is_being_done_and_moves_with_it() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    with TerminalBars(console) as bars, bars.bar("train epoch 1", 3) as advance:
        advance(1, "reward 0.5")
        advance(0, now=Now("step 2: generating, 57 of 128 responses, 812 tokens/s, 40 s left", 0.5))
        bars._bars.refresh()
        (task,) = bars._bars.tasks
        frame = text.getvalue().rsplit("train epoch 1", 1)[1]
        assert task.completed == 1.5 and " 1/3 " in Text.from_ansi(frame).plain and "reward 0.5" in frame
        assert "  step 2: generating, 57 of 128 responses, 812 tokens/s, 40 s left" in frame
        advance(0, now=Now("step 2: update", 7.0))
        assert not task.finished, "a bar is full when all is done"
        advance(0, now=Now("step 2: update", 1.5))
        bars._bars.refresh()
        assert " 1/3 " in Text.from_ansi(text.getvalue().rsplit("train epoch 1", 1)[1]).plain, "only what is finished"
        advance(2)
        assert task.completed == 3 and task.finished
    assert "step 2" not in text.getvalue().rsplit("train epoch 1", 1)[1]


def test_a_log_gets_a_line_now_and_then_while_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = StringIO()
    with LogLines(Console(file=text)).bar("train epoch 1", 3) as advance:
        advance(1, "reward 0.1")
        advance(0, now=Now("step 2: sync"))
        assert text.getvalue() == ""
        monkeypatch.setattr("flows.process.bars._SECONDS_BETWEEN_LINES", -1.0)
        advance(0, now=Now("step 2: update, 40 s left"))
    assert text.getvalue().splitlines() == [
        "train epoch 1: 1/3 in 0 s reward 0.1, step 2: update, 40 s left",
        "train epoch 1: 1/3 in 0 s reward 0.1",
    ]


@pytest.mark.usefixtures("_everything_is_long")
def test_a_long_description_takes_no_room_from_the_numbers() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    with TerminalBars(console) as bars, bars.bar("evaluate, sampled", 1000) as advance:
        advance(400)
        with bars.wait("verify the merged model: load it in transformers and in vLLM"):
            bars._bars.refresh()
            assert " 400/1000 0:00:00 " in Text.from_ansi(text.getvalue()).plain.rsplit("evaluate", 1)[1]
