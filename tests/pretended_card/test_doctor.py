"""`sightline doctor --device` on a pretended card, as a person would call it on a real one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pretended_card.card import Card
from tests.pretended_card.conftest import ROOT

# Compiled engines are not computed on the card, products take no time on it, and equal bits need both.
NOT_SHOWN = (
    "agree",
    "same responses",
    "matrix product",
    "repeated",
    "three steps",
    "LoRA",
    "offload",
    "tensor parallel",
    "FSDP",
)


@pytest.mark.timeout(1800)
def test_no_check_breaks_off_that_needs_no_numbers(card: Card, tmp_path: Path) -> None:
    output = tmp_path / "device.json"
    environment = card.environment(gib=8.0)
    command = [sys.executable, "-m", "flows.cli", "doctor", "--device", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert output.is_file(), done.stdout + done.stderr
    found = json.loads(output.read_text())["findings"]
    wrong = [one for one in found if one["verdict"] == "fails" and not any(part in one["check"] for part in NOT_SHOWN)]
    assert found and wrong == []
