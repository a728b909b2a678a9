"""Values as messages repeat them."""

import signal
import subprocess
import sys
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.wording import MOST_SHOWN, exit_words, last_statement, shortened


@given(st.text(max_size=3 * MOST_SHOWN))
def test_a_shortened_text_is_one_short_line(text):
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
def test_an_exit_status_is_put_into_words(status, words):
    assert exit_words(status) == words


def raised(message):
    """The traceback of an error with a cause."""
    try:
        try:
            exec("{}['key']")
        except KeyError as error:
            raise RuntimeError(message) from error
    except RuntimeError:
        return traceback.format_exc()


def crashed():
    """What faulthandler writes as a process with two threads crashes, and libraries write before."""
    code = "import os, threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); os.abort()"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.parametrize(
    ("printed", "statement"),
    [
        ("", ""),
        ("  File a.py, line 1\n\n", ""),
        ("loading\nno space left\n\n", "no space left"),
        (raised("no device"), "RuntimeError: no device"),
        (crashed(), "Fatal Python error: Aborted"),
        (
            f"*** SIGABRT received ***\nPC: @     0x7f9c  (unknown)\n    @     0x7f9c  1377  abort\n{crashed()}",
            "Fatal Python error: Aborted",
        ),
        (
            "*** SIGABRT received ***\nPC: @     0x7f9c  (unknown)\n    @     0x7f9c  1377  abort",
            "*** SIGABRT received ***",
        ),
    ],
    ids=range(7),
)
def test_the_last_statement_of_a_process_is_shown_without_its_stack(printed, statement):
    assert last_statement(printed) == statement
