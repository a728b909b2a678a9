"""`sightline doctor --device` on the CPU: every check is made, none fails, and the file says what the table says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = {
    "torch computes on the driver's GPU",
    "attention over trees",
    "generator and trainer agree in float32",
    "generator and trainer agree in bfloat16",
    "a sleeping generator gives its memory back",
    "the generator sleeps and wakes",
    "a generation is aborted",
    "the generator ends and starts again",
    "3 steps with validation and checkpoints",
    "a step is repeated from its checkpoint",
    "matrix product of 1024 x 1024 in float32",
    "copy from the host's memory",
}


@pytest.mark.slow  # tests/tasks/device_check makes most of the checks in this process
def test_every_check_is_made_and_none_fails(tmp_path: Path) -> None:
    output = tmp_path / "device.json"
    command = [str(Path(sys.executable).with_name("sightline")), "doctor", "--device", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.read_text())
    assert found["device"] == "CPU"
    checks = [finding["check"] for finding in found["findings"]]
    assert {check for check in CHECKS if any(name.startswith(check) for name in checks)} == CHECKS
    assert {finding["verdict"] for finding in found["findings"]} == {"ok", "measured", "not applicable"}
    repeated = [finding for finding in found["findings"] if "the same responses again" in finding["check"]]
    assert all(finding["measured"].startswith("32 of 32 responses are equal") for finding in repeated)
    assert len(repeated) == 3
