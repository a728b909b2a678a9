"""A worker's time is divided among what it works at; each phase has its own peak of memory; and what workers have used
is laid side by side."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from rl_core.workers import usage
from rl_core.workers.usage import PeakMemory, Usage, WorkerUsage, WorkingTime

MOMENT = 0.05
MIB = 1 << 20


def test_the_parts_add_up_to_the_whole():
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


def test_only_the_time_between_values_of_a_generation_counts_as_work():
    working = WorkingTime()
    for _ in working.spent_on("generate", slow_values([])):
        time.sleep(4 * MOMENT)
    found = working.take()
    assert found["generate_s"] >= 3 * MOMENT and found["idle_s"] >= 12 * MOMENT


def test_a_generation_that_is_left_early_ends():
    ended = []
    values = WorkingTime().spent_on("generate", slow_values(ended))
    assert next(values) == 0 and not ended
    values.close()
    assert ended


def test_the_spans_say_when_and_rollouts_that_come_one_after_the_other_are_one_span():
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


def test_each_phase_has_its_own_peak():
    memory = PeakMemory(torch.device("cpu"), unmapped_bytes=int)
    memory.enter("generate")
    large = np.ones(256 * MIB, dtype=np.uint8)
    del large
    memory.enter("update")
    small = np.ones(64 * MIB, dtype=np.uint8)
    del small
    memory.enter("save")
    peaks = memory.take()
    assert set(peaks) == {"generate_peak_gib", "update_peak_gib", "save_peak_gib"}
    assert 0.2 < peaks["generate_peak_gib"] - peaks["save_peak_gib"] < 0.3
    assert 0.03 < peaks["update_peak_gib"] - peaks["save_peak_gib"] < 0.1


def test_the_peak_of_a_phase_that_comes_again_is_the_higher_one():
    memory = PeakMemory(torch.device("cpu"), unmapped_bytes=int)
    rest = memory.take()["update_peak_gib"]
    for phase, mib in (("generate", 192), ("update", 0), ("generate", 8)):
        memory.enter(phase)
        np.ones(mib * MIB, dtype=np.uint8)
    assert 0.15 < memory.take()["generate_peak_gib"] - rest < 0.25


def test_a_system_on_which_no_peak_can_begin_is_not_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(usage, "_CLEAR", tmp_path / "nowhere" / "clear_refs")
    memory = PeakMemory(torch.device("cpu"), unmapped_bytes=int)
    memory.enter("generate")
    memory.enter("update")
    assert memory.take() == {}


def used(host: str, **peaks: float) -> WorkerUsage:
    return WorkerUsage(host=host, device="CPU", seconds={"update_s": 0.123456}, peaks=peaks)


def test_the_largest_peaks_count_for_all_and_columns_have_a_value_for_each_worker():
    both = Usage(workers=[used("a", update_peak_gib=1.0), used("b", update_peak_gib=2.0, save_peak_gib=0.5)])
    assert both.together == {"update_peak_gib": 2.0, "save_peak_gib": 0.5}
    assert both.columns == {
        "host": ["a", "b"],
        "device": ["CPU", "CPU"],
        "update_s": [0.1235, 0.1235],
        "update_peak_gib": [1.0, 2.0],
        "save_peak_gib": [None, 0.5],
    }
    nobody = Usage(workers=[], sent_mib=3.0)
    assert (nobody.together, nobody.columns) == ({"sent_mib": 3.0}, {})
