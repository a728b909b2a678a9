"""`sightline doctor --device` on the CPU: every check is made, none fails, and the file says what the table says."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands import doctor as device
from rl_core.config.loading import load_config
from tasks.device_check import checks
from tasks.device_check.check import Check
from tasks.device_check.checks import SOFTWARE, device_checks
from tests.tasks.device_check.test_geometry import FIELDS, config_of


def doctor(output: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("sightline")), "doctor", "--device", "--output", str(output)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow  # tests/tasks/device_check makes some of the checks in this process
@pytest.mark.timeout(1800)
def test_every_check_is_made_and_none_fails(tmp_path: Path) -> None:
    output, config = tmp_path / "device.json", config_of(tmp_path / "model", FIELDS["images"])
    done = doctor(output, "--devices", "2", "--config", str(config))
    found = json.loads(output.read_text())
    findings = {finding["check"]: finding for finding in found["findings"]}
    # The forecast of a CPU's memory is held to its bound by tests of its own, with nothing else in the process.
    fails = {check for check, finding in findings.items() if finding["verdict"] == "fails" and "memory" not in check}
    assert fails == set(), done.stdout + done.stderr
    assert (found["format"], found["device"], found["gpus"]) == (2, "CPU", 0)
    declared = [name for check in (SOFTWARE, *device_checks(load_config(config))) for name in check.holds]
    forecasts = {name for name in declared if name.endswith("as planned")}
    assert not [name for name in {*declared} - forecasts if not any(check.startswith(name) for check in findings)]
    repeated = [finding for check, finding in findings.items() if "the same responses again" in check]
    assert all(finding["measured"].startswith("32 of 32 responses are equal") for finding in repeated)
    assert len(repeated) == 3


def shown(monkeypatch: pytest.MonkeyPatch, output: Path, made: Sequence[Check], *, width: int) -> tuple[int, str]:
    monkeypatch.setattr(device, "device_checks", lambda _: made)
    with output.with_suffix(".txt").open("w+") as file:
        console = device.Console(file=file, width=80)
        code = device.check_device(output, console, config=None, devices=None)
        file.seek(0)
        return code, file.read()


def test_a_check_that_breaks_off_is_shown_with_what_to_do_and_written_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = Check(
        holds=("first", "the generator sleeps and wakes"),
        function="tests.tasks.device_check.endings:dies",
        advice="set rollout.enforce_eager: true",
    )
    output = tmp_path / "device.json"
    code, text = shown(monkeypatch, output, [dies], width=80)
    assert code == 1
    table = [line for line in text.splitlines() if line and line[0] in "┏┃┡│├└"]
    assert {len(line) for line in table} == {max(map(len, table))}
    assert len(table[0]) <= 80
    last_column = " ".join(line.split("│")[-2].strip() for line in table if line.startswith("│"))
    assert "broke off: ended with signal SIGSEGV to do: set rollout.enforce_eager: true" in last_column
    found = json.loads(output.read_text())
    assert found["device"] == "CPU"
    *_, broken = found["findings"]
    assert (broken["process"], broken["verdict"]) == ("dies", "fails")
    assert "Segmentation fault" in broken["log"]


def test_a_check_of_the_software_that_dies_after_its_finding_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = replace(SOFTWARE, function="tests.tasks.device_check.endings:dies_with_facts")
    monkeypatch.setattr(checks, "SOFTWARE", dies)
    monkeypatch.setattr(device, "SOFTWARE", dies)
    output = tmp_path / "device.json"
    code, _ = shown(monkeypatch, output, [], width=120)
    found = json.loads(output.read_text())
    assert (code, found["device"]) == (1, "CPU")
    assert [finding["verdict"] for finding in found["findings"]] == ["ok", "fails"]


def test_options_of_the_device_are_refused_without_it() -> None:
    refused = CliRunner().invoke(app, ["doctor", "--devices", "2"])
    assert isinstance(refused.exception, ValueError)
    assert "add --device" in str(refused.exception)


def test_the_checks_are_known_without_torch() -> None:
    code = "import sys, flows.commands.doctor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
