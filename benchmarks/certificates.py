"""The certificate of every family, with a tiny model of it: `python -m benchmarks.certificates --output FILE`. The page
docs/models.md shows the figures of the committed file."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.report import machine_facts
from rl_core.config.model import TinyModel
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import build_tiny_model
from tasks.device_check.check import Finding, Setting
from tasks.model_check.checks import AGREES, GRADIENTS, TREES
from tasks.model_check.generator import generator_findings
from tasks.model_check.shrunk import opening_findings
from tasks.model_check.trainer import trainer_findings

LARGEST = {"trees": TREES, "gradients": GRADIENTS, "generator": AGREES}
CORPUS = ["How many objects are there? Reply with the number inside <answer></answer>."] * 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", default=[*FAMILIES], choices=FAMILIES)
    parser.add_argument("--output", type=Path, help="file whose families are replaced by what is found")
    asked = parser.parse_args()
    facts = machine_facts("benchmarks.certificates", sys.argv[1:])
    known: dict[str, Any] = {}
    if asked.output is not None and asked.output.exists():
        known = json.loads(asked.output.read_text())["families"]
    for family in asked.families:
        findings = {finding.check: finding for finding in certificate(family)}
        largest = {name: findings[check].figures["largest"] for name, check in LARGEST.items() if check in findings}
        verdicts = {check: finding.verdict for check, finding in findings.items()}
        known[family] = {"verdicts": verdicts, "largest": largest}
        failing = [check for check, verdict in verdicts.items() if verdict == "fails"]
        print(family, "fails: " + "; ".join(failing) if failing else "ok", flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(facts | {"families": known}, indent=1) + "\n")


def certificate(family: str) -> Iterator[Finding]:
    """What the essential checks find of a tiny model, in this process."""
    source = TinyModel(
        type="tiny", family=family, hidden_size=64, num_heads=2, num_key_value_heads=1, intermediate_size=128,
        num_layers=2, vision_depth=2, vision_hidden_size=64,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch, "whole")
        build_tiny_model(source, whole, corpus=CORPUS, seed=1)
        setting = Setting(folder=Path(scratch), model=Path(scratch, "model"))
        yield from opening_findings(setting, str(whole))
        yield from trainer_findings(setting)
        yield from generator_findings(setting)


if __name__ == "__main__":
    main()
