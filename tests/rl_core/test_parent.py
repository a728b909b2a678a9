"""A process that asks for the end of its parent notices it, also where Python or the kernel cannot tell."""

import os
import subprocess
import sys

import pytest

from rl_core.environment import with_these_sources

CHILD = """
import os, select, sys
if sys.argv[1] == "without":
    del os.pidfd_open
from rl_core.parent import end_of_parent
ended = end_of_parent()
for seconds in (0, 60):
    print(bool(select.select([ended], [], [], seconds)[0]), flush=True)
"""

PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=subprocess.DEVNULL)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["with", "without"])
def test_the_end_of_a_parent_is_noticed(how):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": with_these_sources()},
    )
    assert parent.stdin is not None and parent.stdout is not None
    assert parent.stdout.readline() == "False\n"
    parent.stdin.close()
    assert parent.wait(60) == 0
    assert parent.stdout.readline() == "True\n"
    parent.stdout.close()
