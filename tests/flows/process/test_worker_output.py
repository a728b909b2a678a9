"""A process whose output nobody reads any more."""

import subprocess
import sys

PRINTING = """
import subprocess, sys
from pathlib import Path
from rich.console import Console
from flows.process.worker_output import outlive_the_reader
outlive_the_reader()
Console().print("before")
sys.stdout.flush()
sys.stdin.readline()
for _ in range(3):
    Console().print("after")
    print("after", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
Path(sys.argv[1]).write_text("came to its end")
"""


def test_a_process_goes_on_when_its_reader_is_gone(tmp_path):
    arguments = [sys.executable, "-c", PRINTING, str(tmp_path / "end")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "before\n"
        process.stdout.close()
        process.stderr.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "end").read_text() == "came to its end"


def test_no_output_is_lost_while_somebody_reads(tmp_path):
    lines = (
        "import sys; from flows.process.worker_output import outlive_the_reader as f; f(); f(); print('1\\n' * 50000)"
    )
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.count("1\n") == 50000
    assert done.stderr == ""
