"""Parsing beside another thread that parses, and while objects that take their time become garbage."""

import ast
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rl_core.user_code.text import parse

CODE = "\n".join(f"value_{number} = [{number}, ({number} + 1) * 2]" for number in range(300))


class SlowlyEnding:
    """Garbage in a circle, whose end lets other threads run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(1e-4)


@contextmanager
def another_thread_that_parses() -> Iterator[None]:
    ended = threading.Event()

    def parse_deeper(depth: int = 40) -> None:
        if depth:
            parse_deeper(depth - 1)
            return
        while not ended.is_set():
            parse(CODE[:2000].rpartition("\n")[0])

    thread = threading.Thread(target=parse_deeper)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def often_collecting() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("often_collecting")
def test_two_threads_parse_at_the_same_time() -> None:
    with another_thread_that_parses():
        for _ in range(40):
            garbage = [SlowlyEnding() for _ in range(5)]
            del garbage
            assert len(parse(CODE).body) == 300
    assert gc.isenabled()


@pytest.mark.usefixtures("often_collecting")
def test_no_garbage_is_looked_for_in_the_middle() -> None:
    def searches(parsing: Callable[[str], ast.Module]) -> int:
        seen: list[str] = []
        note = lambda phase, info: seen.append(phase)  # noqa: E731
        gc.callbacks.append(note)
        parsing(CODE)
        gc.callbacks.remove(note)
        return seen.count("start")

    assert searches(ast.parse) > 10, "the control"
    assert searches(parse) <= 1, "one that was due before or after"
