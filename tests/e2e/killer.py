"""Runs the command line and kills this process inside one of its file replacements.

    python tests/e2e/killer.py before|after PART ARGUMENTS...

It dies in the first replacement of a path that has PART in it. With the environment variable DEATHS_FILE, of such a
path in which no process has died yet: that file names them, so that a run which is started again and again dies once in
each. Every state that Sightline keeps reaches its place through os.replace or os.rename, so dying right before and
right after each of them are all the torn states there can be.
"""

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

Rename = Callable[..., None]

_PID = re.compile(r"(?<=\.(?:old|tmp))-\d+")
"""In the names of files and folders that are not in their place yet, or no longer (rl_core/files.py)."""


def arm(moment: str, part: str, deaths: Path | None) -> None:
    """Wrap os.replace and os.rename so that the fatal call kills the process before or after it happens."""
    main_process = os.getpid()
    survived = set(deaths.read_text().splitlines()) if deaths and deaths.exists() else set()

    def is_fatal(path: str) -> bool:
        return os.getpid() == main_process and part in path and path not in survived

    def die(path: str) -> None:
        if deaths is not None:
            with deaths.open("a") as stream:
                stream.write(f"{path}\n")
        os.kill(main_process, signal.SIGKILL)

    def wrap(original: Rename) -> Rename:
        def renamed(*args: object, **kwargs: object) -> None:
            path = _PID.sub("", str(args[1]))  # another process writes the same file under another pid
            if moment == "before" and is_fatal(path):
                die(path)
            original(*args, **kwargs)
            if moment == "after" and is_fatal(path):
                die(path)

        return renamed

    os.replace, os.rename = wrap(os.replace), wrap(os.rename)


if __name__ == "__main__":
    arm(sys.argv[1], sys.argv[2], Path(os.environ["DEATHS_FILE"]) if "DEATHS_FILE" in os.environ else None)
    sys.argv = ["sightline", *sys.argv[3:]]
    from flows.cli import main

    main()
