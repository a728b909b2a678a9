"""The command line as a script starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import SMALL, environment
from tests.machines import SOON
from tests.processes import gone
from tests.servers import wait_until

_IN_THE_BACKGROUND = '"$@" & echo $!; wait $!; echo $?'


@pytest.mark.parametrize(
    "command",
    [("doctor", "--device"), ("run", str(SMALL), "data.prompt_template=null")],
    ids=lambda command: command[0],
)
def test_ctrl_c_is_obeyed_where_a_script_has_started_the_command_in_the_background(
    command: Sequence[str], tmp_path: Path
) -> None:
    """There the shell has SIGINT ignored, which every process inherits that does not see to it."""
    script = ["sh", "-c", _IN_THE_BACKGROUND, "sh", sys.executable, "-m", "flows.cli", *command]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        process = psutil.Process(pid)
        wait_until(lambda: bool(process.children()), "the command works", seconds=SOON)
        below = [pid, *(child.pid for child in process.children(recursive=True))]
        assert not any(map(_ignores_ctrl_c, below))
        os.kill(pid, signal.SIGINT)
        assert shell.stdout.read().splitlines()[-1] == "130"
    wait_until(lambda: gone(below), "what it has started ends", seconds=SOON)


def _ignores_ctrl_c(pid: int) -> bool:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) & 1 << signal.SIGINT - 1)
