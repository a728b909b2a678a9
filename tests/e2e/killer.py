"""Runs the command line and kills this process inside one of its file replacements.

    python tests/e2e/killer.py before|after WHICH ARGUMENTS...

WHICH is the number of the replacement, or a part of the path that is replaced (the first such one).
Every state that Sightline keeps reaches its place through os.replace or os.rename, so dying right before and right
after each of them are all the torn states there can be. With WHICH = 0 nothing is killed and the number of replacements
is written to the file named by REPLACEMENTS_FILE.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

Rename = Callable[..., None]


def arm(moment: str, which: str) -> None:
    """Wrap os.replace and os.rename so that the fatal call kills the process before or after it happens."""
    main_process = os.getpid()
    count = 0

    def wrap(original: Rename) -> Rename:
        def renamed(*args: object, **kwargs: object) -> None:
            nonlocal count
            if os.getpid() != main_process:
                original(*args, **kwargs)
                return
            count += 1
            fatal = count == int(which) if which.isdigit() else which in str(args[1])
            if fatal and moment == "before":
                os.kill(main_process, signal.SIGKILL)
            original(*args, **kwargs)
            if fatal:
                os.kill(main_process, signal.SIGKILL)
            if "REPLACEMENTS_FILE" in os.environ:
                Path(os.environ["REPLACEMENTS_FILE"]).write_text(str(count))

        return renamed

    os.replace, os.rename = wrap(os.replace), wrap(os.rename)


if __name__ == "__main__":
    arm(sys.argv[1], sys.argv[2])
    sys.argv = ["sightline", *sys.argv[3:]]
    from flows.cli import main

    main()
