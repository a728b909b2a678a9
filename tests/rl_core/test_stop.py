"""A request to stop ends work that is made anew wherever it is, and waits for the end of a step everywhere else."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from rl_core.stop import Interrupted, StopRequest


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
def test_a_signal_ends_a_wait_that_has_no_end(stop: StopRequest, signum: signal.Signals, code: int) -> None:
    signal.signal(signal.SIGALRM, lambda *_: send(signum))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    reader, writer = os.pipe()
    with pytest.raises(Interrupted, match=signum.name) as caught, stop.breaking_off():
        ask_a_hub_that_does_not_answer(reader)
    assert caught.value.exit_code == code
    os.close(reader)
    os.close(writer)


def test_elsewhere_a_signal_is_only_remembered(stop: StopRequest) -> None:
    with stop.breaking_off():
        pass
    send(signal.SIGTERM)
    time.sleep(0)
    assert stop.signum == signal.SIGTERM
    with pytest.raises(Interrupted), stop.breaking_off():
        pytest.fail("nothing is begun any more")


def test_an_interrupt_that_is_no_signals_passes(stop: StopRequest) -> None:
    with pytest.raises(KeyboardInterrupt), stop.breaking_off():
        raise KeyboardInterrupt
