"""What must hold on a GPU: every check of `sightline doctor --device`. Run by `make test-gpu`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_core.planning.gpu import find_gpu


def has_gpu() -> bool:
    """Whether this machine has a GPU, although tests/conftest.py hides it from the processes of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return find_gpu() is not None


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_gpu(), reason="there is no NVIDIA GPU on this machine"),
    pytest.mark.timeout(3600),  # generators that compile start ten times
]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """All findings, made in a process that sees the GPU."""
    output = tmp_path_factory.mktemp("device") / "device.json"
    command = [str(Path(sys.executable).with_name("sightline")), "doctor", "--device", "--output", str(output)]
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert output.is_file(), done.stdout + done.stderr
    found = json.loads(output.read_text())
    assert found["device"] != "CPU"
    return list(found["findings"])


def test_no_check_fails(findings: list[dict[str, str]]) -> None:
    assert [finding for finding in findings if finding["verdict"] == "fails"] == []


def test_only_checks_that_need_another_gpu_were_left_out(findings: list[dict[str, str]]) -> None:
    left_out = [finding for finding in findings if finding["verdict"] == "not checked"]
    assert [finding for finding in left_out if not finding["measured"].startswith("it needs 2 devices")] == []
