"""Defaults of a flow's process, which a person's own settings win over."""

import os
import subprocess
import sys

import pytest

from flows.settings import CONSOLE_DEFAULTS, FLOW_DEFAULTS, set_console_defaults
from rl_core.environment import TELEMETRY_OFF


def test_defaults_are_set_and_own_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    every = {**TELEMETRY_OFF, **FLOW_DEFAULTS, **CONSOLE_DEFAULTS}
    for name in every:
        monkeypatch.setenv(name, "")  # so that its absence is restored at the end
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "9")
    set_console_defaults()
    assert {name: os.environ[name] for name in every} == {**every, "PREFECT_CLIENT_MAX_RETRIES": "9"}


def test_importing_a_flow_turns_telemetry_off_before_prefect_reads_it() -> None:
    script = """
import flows, sys
assert "prefect" not in sys.modules
from prefect.settings import get_current_settings
assert get_current_settings().server.analytics_enabled is False
"""
    unset = {name: value for name, value in os.environ.items() if name not in TELEMETRY_OFF}
    done = subprocess.run([sys.executable, "-c", script], env=unset, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_loads_no_library_that_reads_a_default_before_it_is_set() -> None:
    script = (
        "import flows.cli, sys; print(sorted({'huggingface_hub', 'prefect', 'pydantic', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
