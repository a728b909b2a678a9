"""The tool `python`: runs a program that the model has written, and shows what it prints. The program may read the
installed Python and its libraries, and nothing else: no other file, no network, no further process."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import getrandbits
from typing import IO, Final, Protocol

from rl_core.config.tools import ToolsConfig
from rl_core.tools.tool import Tool
from rl_core.wording import exit_words, plain_text

# The shell only joins what the program prints as errors to the rest, in order (`-u`). `-P -s`: neither the working
# directory nor the user's own folder of packages is searched.
_COMMAND: Final = ("/bin/sh", "-c", 'exec "$0" -P -s -u -c "$1" 2>&1', sys.executable)
_READABLE: Final = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom", sys.prefix, sys.base_prefix)
_WRITABLE: Final = ("/dev/null",)
_FOLDER: Final = "/usr"
"""The working directory, in which nothing can be written."""
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_LONGEST_PROGRAM: Final = 100_000
"""In bytes; Linux takes an argument of 128 KiB."""
_PIECE: Final = 64 * 1024
_SHORTEST_WAIT: Final = 0.001
"""Seconds; without any, the sandbox waits for ever."""
_NO_SIGNAL: Final = 9
"""SIGKILL: what the sandbox itself has ended has no signal."""


class _Program(Protocol):
    """A program that runs. `wait` ends it after so many seconds, and gives its exit status, negative after a signal."""

    stdout: IO[bytes]
    kill: Callable[[], None]

    def wait(self, seconds: float) -> int: ...


class _Confined:
    """In a sandbox of Landlock and seccomp. What it draws from the system's random numbers follows from the seed."""

    def __init__(self, code: str, seed: int) -> None:
        from sandlock import Sandbox, StdioMode  # most runs have no such tool

        sandbox = Sandbox(
            fs_readable=[path for path in _READABLE if Path(path).exists()],
            fs_writable=_WRITABLE,
            max_processes=1,
            clean_env=True,
            env=_ENVIRONMENT,
            cwd=_FOLDER,
            random_seed=seed,
            no_randomize_memory=True,
            no_coredump=True,
        )
        self._process = sandbox.popen([*_COMMAND, code], StdioMode.NULL, StdioMode.PIPED, StdioMode.NULL)
        self.stdout: IO[bytes] = self._process.stdout
        self.kill: Callable[[], None] = self._process.kill

    def wait(self, seconds: float) -> int:
        result = self._process.wait(seconds)
        return int(result.exit_code) if result.exit_code >= 0 else -max(int(result.signal), _NO_SIGNAL)


class _Unconfined:
    """As any program of this user's."""

    def __init__(self, code: str, seed: int) -> None:
        self._process = subprocess.Popen(
            [*_COMMAND, code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_FOLDER,
            env=dict(_ENVIRONMENT),
        )
        assert self._process.stdout is not None, "it is a pipe"
        self.stdout: IO[bytes] = self._process.stdout
        self.kill: Callable[[], None] = self._process.kill

    def wait(self, seconds: float) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


def python_tool(config: ToolsConfig) -> Tool:
    """The tool. A program has the address space of the process that calls it."""
    start = _Confined if config.sandbox == "landlock" else _Unconfined

    def python(code: str) -> str:
        """Run a Python program and read what it prints.

        Args:
            code: The program.
        """
        if len(code.encode()) > _LONGEST_PROGRAM or "\0" in code:
            raise ValueError(f"the program has more than {_LONGEST_PROGRAM} bytes, or a zero byte")
        program = start(code, getrandbits(63))
        return _run(program, timeout_seconds=config.timeout_seconds, longest_text=config.longest_text)

    return Tool(python)


def confinement_problem() -> str | None:
    """Why a program cannot be confined here; None where it can."""
    from sandlock import landlock_abi_version, min_landlock_abi

    found, needed = landlock_abi_version(), min_landlock_abi()
    if found >= needed:
        return None
    has = f"offers version {found} of it" if found > 0 else "offers none"
    return f"python confines programs with Landlock {needed} (Linux 6.12 or later), and this kernel {has}"


def _run(program: _Program, *, timeout_seconds: float, longest_text: int) -> str:
    """What a program prints. Raises ValueError, with this and the reason, where it does not end well."""
    deadline = time.monotonic() + timeout_seconds
    with program.stdout as output:
        printed = _printed(output, deadline, most=longest_text)
        if len(printed) > longest_text:
            program.kill()
        status = program.wait(max(deadline - time.monotonic(), _SHORTEST_WAIT))
    text = plain_text(printed[:longest_text].decode(errors="replace"))
    if len(printed) > longest_text:
        raise ValueError(f"the program printed more than {longest_text} characters\n{text}")
    if time.monotonic() >= deadline:
        raise ValueError(f"the program took longer than {timeout_seconds:g} seconds\n{text}")
    if status != 0:
        raise ValueError(f"{text}\nthe program ended with {exit_words(status)}".lstrip())
    return text or "the program printed nothing"


def _printed(output: IO[bytes], deadline: float, *, most: int) -> bytes:
    """What is printed until the output is closed, the time is over, or it is more than `most` bytes."""
    printed = b""
    readable = select.poll()
    readable.register(output, select.POLLIN)
    while len(printed) <= most and (left := deadline - time.monotonic()) > 0:
        if readable.poll(1000 * left):
            piece = os.read(output.fileno(), _PIECE)
            if not piece:
                break
            printed += piece
    return printed
