"""A worker's time is divided among what it works at, and the rest is idle."""

import time
from collections.abc import Iterator

import pytest

from rl_core.workers.usage_meter import WorkingTime

MOMENT = 0.05


def test_the_parts_add_up_to_the_whole() -> None:
    working = WorkingTime()
    with working.at("update"):
        time.sleep(MOMENT)
    time.sleep(MOMENT)
    found = working.take()
    processor, total = found.pop("processor_s"), found.pop("total_s")
    assert sum(found.values()) == pytest.approx(total)
    assert found["update_s"] >= MOMENT and found["idle_s"] >= MOMENT and found["generate_s"] == 0.0
    assert processor < total


def slow_values(ended: list[bool]) -> Iterator[int]:
    try:
        for value in range(3):
            time.sleep(MOMENT)
            yield value
    finally:
        ended.append(True)


def test_of_a_generation_only_the_waiting_for_values_is_counted() -> None:
    working = WorkingTime()
    for _ in working.spent_on("generate", slow_values([])):
        time.sleep(4 * MOMENT)
    found = working.take()
    assert found["generate_s"] >= 3 * MOMENT and found["idle_s"] >= 12 * MOMENT


def test_a_generation_that_is_left_early_ends() -> None:
    ended: list[bool] = []
    values = WorkingTime().spent_on("generate", slow_values(ended))
    assert next(values) == 0 and not ended
    values.close()
    assert ended


def test_the_spans_say_when_and_rollouts_that_come_one_after_the_other_are_one_span() -> None:
    working, before = WorkingTime(), time.time()
    with working.at("sync"):
        time.sleep(MOMENT)
    assert list(working.spent_on("generate", slow_values([]))) == [0, 1, 2]
    time.sleep(MOMENT)
    with working.at("generate"):
        time.sleep(MOMENT)
    spans = working.take_spans()
    assert [work for work, _, _ in spans] == ["sync", "generate", "generate"]
    times = [moment for _, begin, end in spans for moment in (begin, end)]
    assert times == sorted(times) and before <= times[0] and times[-1] <= time.time()
    assert spans[1][2] - spans[1][1] >= 3 * MOMENT
    assert working.take_spans() == []
