"""A request to stop ends work that is made again wherever it is, and waits for the end of a step everywhere else."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rl_core.stop import Interrupted, StopRequest, stopped_by_signals
from tests.servers import wait_until


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    request = StopRequest()
    before = {signum: signal.signal(signum, request.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield request
    for signum, handler in before.items():
        signal.signal(signum, handler)


def send(signum: signal.Signals) -> None:
    os.kill(os.getpid(), signum)


def ask_a_hub_that_does_not_answer(reader: int) -> None:
    try:
        os.read(reader, 1)
    except Exception:  # noqa: BLE001 - as libraries do
        pytest.fail("a library took the request for a failure of its own")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_wait_that_has_no_end(stop, signum, code):
    signal.signal(signal.SIGALRM, lambda *_: send(signum))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    reader, writer = os.pipe()
    with pytest.raises(Interrupted, match=signum.name) as caught, stop.breaking_off():
        ask_a_hub_that_does_not_answer(reader)
    assert caught.value.exit_code == code
    os.close(reader)
    os.close(writer)


def test_elsewhere_a_signal_is_only_remembered(stop):
    with stop.breaking_off():
        pass
    send(signal.SIGTERM)
    time.sleep(0)
    assert stop.signum == signal.SIGTERM
    with pytest.raises(Interrupted), stop.breaking_off():
        pytest.fail("nothing is begun any more")


def test_an_interrupt_that_is_no_signals_passes(stop):
    with pytest.raises(KeyboardInterrupt), stop.breaking_off():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        (
            lambda: "step 4: update, 40 s left",
            "SIGTERM: stops after this step, now step 4: update, 40 s left; a second",
        ),
        (str, "SIGTERM: stops after this step; a second"),
    ],
)
def test_a_request_is_answered_at_once_with_when_it_takes_effect_and_what_is_done_until_then(doing, words, caplog):
    stop = StopRequest()
    stop.doing = doing
    with stopped_by_signals(stop), stop.taking_effect(lambda: "after this step"):
        send(signal.SIGTERM)
        wait_until(lambda: bool(caplog.messages), "the request is answered")
        (answer,) = caplog.messages
    assert answer.startswith(f"{words} signal ends it at once")
    assert len(caplog.messages) == 1


def test_elsewhere_it_takes_effect_as_soon_as_it_can(caplog):
    stop = StopRequest()
    with stopped_by_signals(stop):
        with stop.taking_effect(lambda: "after this step"):
            pass
        send(signal.SIGTERM)
    assert caplog.messages[0].startswith("SIGTERM: stops as soon as it can; ")


def test_only_a_stop_that_has_to_wait_is_answered_with_when_it_takes_effect(caplog):
    with caplog.at_level(logging.INFO):
        with stopped_by_signals(StopRequest()):
            pass
        assert not caplog.messages
        stop = StopRequest()
        with suppress(Interrupted), stopped_by_signals(stop), stop.breaking_off():
            send(signal.SIGTERM)
    assert caplog.messages == ["SIGTERM: stops now; what was begun here is made again"]


def test_a_second_signal_ends_the_process_at_once():
    code = """
import logging, time
from rl_core.stop import StopRequest, stopped_by_signals
logging.basicConfig()
with stopped_by_signals(StopRequest()):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert b"a second signal ends it at once" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
