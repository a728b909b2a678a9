"""Makes checks, each in a process of its own, so that one that breaks off, by an error, a signal or a hang, hides no
other.

`python -m tasks.device_check.running FUNCTION SETTING FINDINGS` is this process. Each finding is a line of the file
FINDINGS as soon as it is made, so that it is known if the process breaks off after it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

import psutil
from pydantic import TypeAdapter

from rl_core.environment import with_these_sources
from rl_core.families.own import keep_own_family
from rl_core.parent import end_with_parent
from rl_core.wording import exit_words, shortened
from tasks.device_check.check import Check, Finding, Setting, not_checked

SETTING: Final = TypeAdapter(Setting)
"""Writes a setting as JSON for the process, and reads it there."""

BROKE_OFF = "broke_off"
"""The key of a line that says by which error the function ended."""

_LINES_KEPT: Final = 200
"""Last lines of a process that broke off, which hold the traceback, or the stacks of all its threads."""

_LINES_OF_A_WORKER: Final = 60
"""Last lines of each of its workers, which have files of their own for them."""

_WORKER: Final = "ray::RankActor"
"""How the titles of workers' processes begin."""

_MOST_CHARACTERS: Final = 300
"""Characters of an error that are shown."""

_END_SECONDS: Final = 30.0
"""How long the end of a killed process is waited for."""

_STACK_SECONDS: Final = 5.0
"""How long a process that hangs may take to write where it hangs."""


def findings_of(check: Check, setting: Setting) -> Iterator[Finding]:
    """What a check finds. Where its process breaks off, what it has found until then, and that it broke off."""
    file, log = setting.folder / "findings.jsonl", setting.folder / "log"
    end = _ended(check, setting, file=file, log=log)
    lines = _lines(file)
    findings = [Finding(**line) for line in lines if BROKE_OFF not in line]
    yield from findings
    if end or not findings:
        error = next((line[BROKE_OFF] for line in lines if BROKE_OFF in line), "")
        yield from _broken(check, findings, why=error or end or "it found nothing", log=log)


def _lines(file: Path) -> list[dict[str, Any]]:
    """What the process has written, without a line that it was killed in."""
    *whole, _ = file.read_text().split("\n") if file.exists() else [""]
    return [json.loads(line) for line in whole]


def _ended(check: Check, setting: Setting, *, file: Path, log: Path) -> str:
    """Run the process to its end, or to the end of its time. Returns how it ended; empty if it ended well."""
    command = [sys.executable, "-P", "-m", "tasks.device_check.running"]
    with log.open("wb") as output:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [*command, check.function, SETTING.dump_json(setting).decode(), str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": with_these_sources(), "PYTHONFAULTHANDLER": "1"},
        )
        try:
            status = process.wait(check.seconds)
        except subprocess.TimeoutExpired:
            _end_with_stacks(process.pid, log)
            return f"it did not end within {check.seconds:g} s, and was stopped"
        finally:
            with suppress(ProcessLookupError):  # nothing is left of its session
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # a process in a driver that hangs cannot even be killed
                process.wait(_END_SECONDS)
    if status == 0:
        return ""
    return f"ended with {exit_words(status)}"


def _end_with_stacks(pid: int, log: Path) -> None:
    """End a process that hangs with all processes below it, of which some, such as workers, have sessions of their own.
    Each writes the stacks of its threads first (faulthandler does it at this signal), to the log, or a worker to a file
    of Ray's, whose last lines go to the log."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    with ExitStack() as stack, log.open("ab") as all_errors:
        errors = [file for process in processes if (file := _errors_of_worker(process)) is not None]
        for file in errors:
            stack.enter_context(file)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()  # workers would end with the one that has started them before they write
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGABRT)
                process.resume()
                _wait_for_end(process)  # stacks that are written at the same time would be mixed
                process.kill()
        for file in errors:
            all_errors.write(b"\n".join(file.read().splitlines()[-_LINES_OF_A_WORKER:]) + b"\n")


def _errors_of_worker(process: psutil.Process) -> BinaryIO | None:
    """The file to which a worker writes its standard error; None of other processes."""
    with suppress(psutil.NoSuchProcess, OSError):  # it has ended
        if next(iter(process.cmdline()), "").startswith(_WORKER):
            return Path(f"/proc/{process.pid}/fd/2").open("rb")
    return None


def _wait_for_end(process: psutil.Process) -> None:
    """Wait for the end of a process that may be a zombie then. Raises psutil.NoSuchProcess when it is gone."""
    deadline = time.monotonic() + _STACK_SECONDS
    while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)


def _broken(check: Check, findings: list[Finding], *, why: str, log: Path) -> Iterator[Finding]:
    """That a check broke off where its next finding would have been, and that the others were not made."""
    found = {finding.check for finding in findings}
    first, *others = [holds for holds in check.holds if holds not in found] or [f"{check.name}: its process ends"]
    # The errors of CUDA and vLLM go on with advice to their developers, which is in the log.
    measured = f"broke off: {shortened(why.strip().splitlines()[0], most=_MOST_CHARACTERS)}"
    last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES_KEPT:])
    yield Finding(check=first, verdict="fails", measured=measured, advice=check.advice, log=last_lines)
    for holds in others:
        yield not_checked(holds, "its process broke off before")


def _make_findings(function: str, setting: Setting, findings: Path) -> None:
    """Call the function and write what it finds. Raises what the function raises."""
    module, name, *arguments = function.split(":", 2)
    keep_own_family(setting.family)
    with findings.open("a") as file:

        def write(line: dict[str, object]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            for finding in getattr(import_module(module), name)(setting, *arguments):
                write(asdict(finding))
        except BaseException as error:
            write({BROKE_OFF: f"{type(error).__name__}: {error}"})
            raise


if __name__ == "__main__":
    end_with_parent(lambda: os.killpg(0, signal.SIGKILL))  # with the processes that it has started
    _make_findings(sys.argv[1], SETTING.validate_json(sys.argv[2]), Path(sys.argv[3]))
