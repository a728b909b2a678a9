"""The peak of a phase is that phase's own, and not that of the one before it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.workers import usage_meter
from rl_core.workers.usage_meter import PeakMemory

MIB = 1 << 20


def test_each_phase_has_its_own_peak() -> None:
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


def test_the_peak_of_a_phase_that_comes_again_is_the_higher_one() -> None:
    memory = PeakMemory(torch.device("cpu"), unmapped_bytes=int)
    rest = memory.take()["update_peak_gib"]
    for phase, mib in (("generate", 192), ("update", 0), ("generate", 8)):
        memory.enter(phase)
        np.ones(mib * MIB, dtype=np.uint8)
    assert 0.15 < memory.take()["generate_peak_gib"] - rest < 0.25


def test_a_system_on_which_no_peak_can_begin_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(usage_meter, "_CLEAR", tmp_path / "nowhere" / "clear_refs")
    memory = PeakMemory(torch.device("cpu"), unmapped_bytes=int)
    memory.enter("generate")
    memory.enter("update")
    assert memory.take() == {}
