"""A Ray cluster on this machine, which ends with the run."""

import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from ray._private.authentication.authentication_token_setup import enable_token_auth_by_default

from rl_core.config.cluster import ClusterConfig
from rl_core.environment import ALLOCATOR, with_these_sources
from rl_core.redaction import redact
from rl_core.wording import last_statement
from rl_core.workers.ray_head import only_loopback

_LAST_WORDS: Final = 200
"""Lines of a dead worker that are kept."""

_END_SECONDS: Final = 30.0
"""A cluster that takes longer to end is killed."""

_LOOK_SECONDS: Final = 0.5
"""How often new output of the workers is looked for."""

_SETTINGS: Final = {
    # Ray gives workers a low priority. All ranks wait for each other, so on cores that they share with a reward pool or
    # anything else, all would be as slow as the one that gets a core last.
    "RAY_worker_niceness": "0",
    # Ray would end a worker when 95 % of the machine's memory is in use, whoever uses it. A run may need it.
    "RAY_memory_monitor_refresh_ms": "0",
    # Ray would have the kernel end workers before all other processes.
    "RAY_worker_oom_score_adjustment": "0",
    # What a worker has started ends with it, also when it is killed.
    "RAY_process_group_cleanup_enabled": "1",
}

_SETTINGS_OF_THE_RUN: Final = {
    # After a minute in which its service does not answer, Ray would end the run's own process, in the middle of
    # anything. The run itself notices at once (`has_ended`).
    "RAY_gcs_rpc_server_reconnect_timeout_s": f"{10**6}",
}

_LONGEST_FOLDER: Final = 30
"""Most characters of the folder in which the cluster's folder is made: the path of a socket in it may have 107, and
`/ray-NAME/session_TIME_PROCESS/sockets/plasma_store` has up to 77."""


class LocalRay:
    """The process that holds a local cluster (rl_core.workers.ray_head) at `address`, and the cluster's folder."""

    def __init__(self, config: ClusterConfig) -> None:
        """Start a cluster with room for the workers. Raises ConnectionError if it does not start in time."""
        only_loopback()
        require_token()
        os.environ.update(_SETTINGS_OF_THE_RUN)
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir=_short_folder()))
        self._output: _FollowedOutput | None = None
        gpus = 0 if config.device == "cpu" else torch.cuda.device_count()  # Ray by itself counts only what NVML knows
        self._head = subprocess.Popen(
            [sys.executable, "-P", "-m", "rl_core.workers.ray_head", f"{self._folder}", f"{config.devices}", f"{gpus}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=_variables(on_gpu=gpus > 0),
        )
        try:
            self.address = self._printed_address(seconds=config.start_timeout_seconds)
        except BaseException:
            self.close()
            raise
        self._output = _FollowedOutput(self._folder / "session_latest" / "logs")

    def has_ended(self) -> bool:
        """Whether the cluster is gone, as after a kill of one of Ray's services. Ray would wait for its answer."""
        return self._head.poll() is not None

    def last_words(self, pid: int) -> str:
        """The end of what a worker has written on its standard error, such as the stack at which a library has
        crashed."""
        files = self._folder.glob(f"session_latest/logs/worker-*-{pid}.err")
        lines = [line for file in files for line in file.read_text(errors="replace").splitlines() if _is_message(line)]
        return redact("\n".join(lines[-_LAST_WORDS:]))

    def close(self) -> None:
        """End the cluster and remove its folder."""
        head = self._head
        assert head.stdin is not None and head.stdout is not None
        if self._output is not None:
            self._output.close()
        head.stdin.close()
        try:
            head.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)  # its children end with it
            head.wait()
        head.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _printed_address(self, *, seconds: float) -> str:
        """The address that the process prints."""
        stdout, printed = self._head.stdout, ""
        assert stdout is not None
        why = f"did not start within {seconds:g} s (cluster.start_timeout_seconds: raise it on a busy machine)"
        printing = select.poll()
        printing.register(stdout, select.POLLIN)
        while printing.poll(1000 * seconds):
            line = stdout.readline()
            if line.startswith("127.0.0.1:"):
                return line.strip()
            if not line:
                why = "ended while it started"
                break
            printed += line
        failed = ConnectionError(f"it {why}: {last_statement(printed) or 'it printed nothing'}")
        failed.add_note(printed)  # for a log with its traceback
        raise failed


def _variables(*, on_gpu: bool) -> dict[str, str]:
    """The environment of the cluster, which its workers inherit."""
    hidden = {} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return {**_SETTINGS, **ALLOCATOR, **os.environ, **hidden, "PYTHONPATH": with_these_sources()}


def require_token() -> None:
    """Have the clusters that this process starts refuse everyone without a token, because on a machine with several
    users each could run code in them. The token is in the environment and not in the home folder, where Ray would write
    one. A choice in the environment (RAY_AUTH_MODE) stays as it is."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    enable_token_auth_by_default()


def _short_folder() -> str:
    """The folder of temporary files, or else that of the machine (RAY_TMPDIR); /tmp if their paths are too long for
    sockets."""
    wanted = (tempfile.gettempdir(), os.environ.get("RAY_TMPDIR"))
    short = [folder for folder in wanted if folder and len(folder) <= _LONGEST_FOLDER]
    return short[0] if short else "/tmp"  # noqa: S108 - the folder in it gets a name of its own


class _FollowedOutput:
    """A thread that writes the lines of all workers, such as the messages of a library or a `print` in a user's loss,
    on the standard error of this process."""

    def __init__(self, folder: Path) -> None:
        """Follow the files of Ray's logs in a folder."""
        self._folder = folder
        self._read: defaultdict[Path, int] = defaultdict(int)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="output-of-workers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on what is left, and end."""
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self._pass_on()
        self._pass_on()

    def _pass_on(self) -> None:
        for file in sorted([*self._folder.glob("worker-*.out"), *self._folder.glob("worker-*.err")]):
            with suppress(OSError):  # Ray has ended, and its files are gone
                lines = self._new_lines(file)
                sys.stderr.write("".join(f"{redact(line)}\n" for line in lines if _is_message(line)))

    def _new_lines(self, file: Path) -> list[str]:
        """The lines that were completed since the last look."""
        with file.open("rb") as stream:
            stream.seek(self._read[file])
            whole, end, _ = stream.read().rpartition(b"\n")
        self._read[file] += len(whole) + len(end)
        return whole.decode(errors="replace").splitlines()


def _is_message(line: str) -> bool:
    """Whether a line is neither empty nor one of Ray's marks."""
    return bool(line.strip()) and not line.startswith(":")
