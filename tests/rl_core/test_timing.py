import time

import pytest

from rl_core.timing import PhaseTimer


def test_phases_add_up_to_the_total():
    timer = PhaseTimer()
    for _ in range(2):
        with timer.phase("update"):
            time.sleep(0.01)
    result = timer.result()
    assert result["update"] >= 0.02
    assert result["update"] + result["other"] == pytest.approx(result["total"])


def test_a_phase_that_is_split_keeps_what_no_part_covers():
    timer = PhaseTimer()
    with timer.phase("update"):
        time.sleep(0.02)
    whole = timer.seconds["update"]
    timer.split("update", {"forward_backward": 0.004, "optimizer": 0.001})
    assert timer.seconds == {"update": pytest.approx(whole - 0.005), "forward_backward": 0.004, "optimizer": 0.001}


def test_parts_of_several_phases_of_a_name_are_added_up():
    timer = PhaseTimer()
    for _ in range(2):  # draws of a step
        with timer.phase("generate"):
            time.sleep(0.02)
        timer.split("generate", {"tool_wait": 0.004})
    assert timer.seconds["tool_wait"] == pytest.approx(0.008)
    assert timer.seconds["generate"] + 0.008 >= 0.04
