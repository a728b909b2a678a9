"""Telemetry is off in every process, however it is started."""

import os
import re
from pathlib import Path

import pytest

from rl_core.environment import TELEMETRY_OFF, disable_telemetry

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def test_what_is_not_set_is_turned_off_and_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TELEMETRY_OFF:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    disable_telemetry()
    assert {name: os.environ[name] for name in TELEMETRY_OFF} == {**TELEMETRY_OFF, "RAY_USAGE_STATS_ENABLED": "1"}


def test_make_exports_the_same_variables() -> None:
    exported = dict(re.findall(r"^export (\w+) = (\S+)$", MAKEFILE.read_text(), flags=re.MULTILINE))
    assert exported == {**TELEMETRY_OFF, "OMP_WAIT_POLICY": "passive"}
