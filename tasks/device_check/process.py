"""The process of one check: `python -m tasks.device_check.process FUNCTION SETTING FINDINGS`. Each finding is a line of
the file FINDINGS as soon as it is made, so that it is known if the process breaks off after it."""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from rl_core.parent import end_with_parent
from tasks.device_check.check import Setting, function_of

BROKE_OFF = "broke_off"
"""The key of a line that says by which error the function ended."""


def make_findings(function: str, setting: Setting, findings: Path) -> None:
    """Call the function and write what it finds. Raises what the function raises."""
    with findings.open("a") as file:

        def write(line: dict[str, object]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            for finding in function_of(function)(setting):
                write(asdict(finding))
        except BaseException as error:
            write({BROKE_OFF: f"{type(error).__name__}: {error}"})
            raise


if __name__ == "__main__":
    end_with_parent(lambda: os.killpg(0, signal.SIGKILL))  # with the processes that it has started
    make_findings(sys.argv[1], Setting.from_json(sys.argv[2]), Path(sys.argv[3]))
