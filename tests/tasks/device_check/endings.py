"""Checks that end in every way, for test_running.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tasks.device_check.check import Finding, Setting
from tasks.device_check.checks import SOFTWARE

CHILD = """
import time
def waits_for_a_kernel():
    time.sleep(600)
waits_for_a_kernel()
"""

FIRST = Finding(check="first", verdict="ok", measured="made", figures={"seconds": 1.5})


def ends_well(setting: Setting) -> Iterator[Finding]:
    yield FIRST
    yield Finding(check="second", verdict="measured", measured=f"{setting.devices} devices")


def raises(setting: Setting) -> Iterator[Finding]:
    yield FIRST
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nKernel errors might be reported later")


def dies(setting: Setting) -> Iterator[Finding]:
    yield FIRST
    os.kill(os.getpid(), signal.SIGSEGV)


def dies_with_facts(setting: Setting) -> Iterator[Finding]:
    (software,) = SOFTWARE.holds
    yield Finding(check=software, verdict="ok", measured="", figures={"device": "CPU", "gpus": 0})
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs_with_a_child(setting: Setting) -> Iterator[Finding]:
    """As a worker of Ray, whose standard error is a file of its own."""
    with (setting.folder / "worker.err").open("wb") as errors:
        child = subprocess.Popen(
            ["ray::RankActor.call", "-c", CHILD], executable=sys.executable, stderr=errors, start_new_session=True
        )
    yield Finding(check="first", verdict="ok", measured="", figures={"pid": child.pid})
    time.sleep(600)


def finds_nothing(setting: Setting) -> Iterator[Finding]:
    yield from ()
