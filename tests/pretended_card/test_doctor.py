"""Checks of `sightline doctor --device` on a pretended card that the other tests of the rehearsal do not make."""

import json
import subprocess
import sys

import pytest

from tests.pretended_card.card import Card
from tests.pretended_card.conftest import ROOT

ASKED = """
import json, sys
from dataclasses import asdict
from tasks.device_check.checks import TINY_CHECKS, device_findings
checks = tuple(check for check in TINY_CHECKS if check.name in sys.argv[1:])
found = device_findings(checks, devices=1, config=None, show=lambda name: None)
print(json.dumps([asdict(finding) for _, finding in found]))
"""


@pytest.mark.timeout(900)
def test_no_check_breaks_off(card: Card) -> None:
    environment = card.environment(gib=8.0) | {"TORCH_COMPILE_DISABLE": "1"}  # test_engine.py compiles
    command = [sys.executable, "-c", ASKED, "attention", "abort"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert [one for one in found.values() if "broke off" in one["measured"]] == []
    aborted = found.pop("a generation is aborted: the same responses again")
    assert "log-probs" in aborted["measured"], "what replayed graphs sample agrees with nothing on the card"
    assert [one["verdict"] for one in found.values()] == ["ok"] * 4
