"""Carries out a run in a process of its own, so that a crash or lack of memory ends this run only."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO, Final

from flows.printing import last_lines
from flows.process.embedded_server import prefect_address
from flows.request import ResolvedRun
from rl_core.config.loading import dump_config
from rl_core.files import atomic_write_text
from rl_core.parent import ended_with_this_process
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked
from rl_core.stop import StopRequest
from rl_core.wording import exit_words, last_statement
from tasks.attempts import noted

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_SHOWN_LINES = 20
_CHUNK_BYTES: Final = 1 << 16
_LEAST_COLUMNS: Final = 40


class NamedLines:
    """The lines that a process prints into a file, each of which is shown after a name.

    It is a file and not a pipe, so that the process can go on when this one is gone.
    """

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.prefix = f"{name}: "
        self.stream = stream
        self._read = 0
        self._rest = b""

    def show(self, *, is_ended: bool = False) -> None:
        """Show the lines that are complete, or all when the process has ended, and were not shown yet."""
        # The process writes at the position of the open file, which both share, so it must not be moved here.
        while chunk := os.pread(self.stream.fileno(), _CHUNK_BYTES, self._read):
            self._read += len(chunk)
            self._rest += chunk
        *lines, self._rest = [*self._rest.split(b"\n"), *([b""] if is_ended else [])]
        texts = [line.decode(errors="replace").rstrip() for line in lines]
        shown = "".join(f"{self.prefix}{text}\n" for text in texts if text)
        encoding = sys.stdout.encoding or "utf-8"
        with suppress(OSError):  # nobody reads them any more, which is no reason to leave the run
            # At once, since other threads show the lines of other runs.
            sys.stdout.write(shown.encode(encoding, errors="replace").decode(encoding))
            sys.stdout.flush()


def run_alone(
    resolved: ResolvedRun, stop: StopRequest, *, variables: Mapping[str, str] | None = None, name: str | None = None
) -> str | None:
    """Carry out or continue a run by `sightline run --resume` in another process, which gets `variables` in its
    environment. A request to stop is passed on, and so is the end of this process: the run stops after its step with a
    checkpoint. `name` stands before each line that the process prints; if it is None, the process has this one's
    stdout, on which it draws its bars. Returns why the run was not completed; None if it was."""
    run = resolved.run
    try:
        with RunLock(run.lock):
            atomic_write_text(run.config, dump_config(resolved.config))
    except RunLocked as locked:
        return f"{locked}"
    before = _noted_flow_run(run)
    # Files and not pipes, so that the run can continue to its checkpoint when this process is gone. They have no names,
    # because the output may contain secrets.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as shown:
        lines = None if name is None else NamedLines(name, shown)
        status = _call(run, stop, printed, lines, variables or {})
        if lines:
            lines.show(is_ended=True)
        if status == 0:
            return None
        failure = _failure(run, before, status, last_lines(printed, _SHOWN_LINES))
    if stop.signum is None:
        logger.warning("%s: %s", run.name, failure)
    return failure


def _failure(run: RunDirectory, before: str | None, status: int, lines: list[str]) -> str:
    """The cause that the process noted; otherwise its exit status and its last output."""
    is_opened = _noted_flow_run(run) not in (None, before)
    if is_opened and (cause := noted(run)["cause"]):
        return str(cause)
    # The log belongs to this attempt only if the process opened the run.
    where = f"; {run.log} may tell more" if is_opened else " before it opened the run"
    ended = f"its process ended with {exit_words(status)}{where}"
    if not lines:
        return ended
    printed = "\n".join([*lines, ""])
    atomic_write_text(run.last_output, printed)
    return f"{ended}; it printed last: {last_statement(printed)} ({run.last_output} has more)"


def _noted_flow_run(run: RunDirectory) -> str | None:
    """The flow run that last wrote the run; None where there is none, or its note is damaged."""
    try:
        return noted(run).get("flow_run")
    except ValueError:
        return None


def _call(
    run: RunDirectory, stop: StopRequest, printed: BinaryIO, lines: NamedLines | None, variables: Mapping[str, str]
) -> int:
    """Run the process, its stderr into a file, its stdout into lines after a name if there are any; its exit status."""
    brief = ["--brief"] if lines else []
    command = [sys.executable, "-m", "flows.cli", "run", *brief, "--resume", str(run.root)]
    # Without what Prefect sets in the process of a flow run, which the new process is not.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    environment = {**own, "PREFECT_API_URL": prefect_address(), **variables}
    if lines and sys.stdout.isatty():  # in which it leaves room for the name
        columns = max(_LEAST_COLUMNS, shutil.get_terminal_size().columns - len(lines.prefix))
        environment["COLUMNS"] = f"{columns}"
    stdout = lines.stream if lines else None
    # In a session of its own, so that Ctrl-C reaches it once, through this process.
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=stdout, stderr=printed)
    with ended_with_this_process(process.pid):
        is_passed_on = False
        while True:
            try:
                return process.wait(_SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                if stop.signum is not None and not is_passed_on:
                    process.send_signal(stop.signum)
                    is_passed_on = True
                if lines:
                    lines.show()
