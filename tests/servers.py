"""Processes of a test that others reach: started, waited for, and gone at its end; MLflow's server above all."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

REPOSITORY = Path(__file__).parents[1]


def free_port() -> int:
    """A port of the loopback address that nobody listens on. It lies below those that Linux gives to connections, one
    of which might have it before the server that it is for."""
    while True:
        port = 15_000 + secrets.randbelow(17_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited {seconds} s until {what}"
        time.sleep(0.1)


def wait_for_answer(address: str) -> None:
    """Wait until a server is up."""

    def answers() -> bool:
        try:
            return client.get(address).is_success
        except httpx.TransportError:
            return False

    with httpx.Client(timeout=5.0) as client:  # one for all calls, because each reads the certificates of the system
        wait_until(answers, f"{address} answers")


@contextmanager
def answering(answer: Callable[[str, bytes], tuple[int, object]]) -> Iterator[str]:
    """The address of a server that answers each request, by its path and body, with a status and JSON. What is not
    there is said in the words of the Hugging Face hub."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = answer(self.path, body)
            written = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", f"{len(written)}")
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            self.wfile.write(written)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def started(arguments: list[str], variables: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, like a command in its own terminal; gone at the end of the block."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            arguments, env=variables, cwd=REPOSITORY, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A real server that answers, on a database and artifacts of its own below `folder`; killed at the end of the
    block. A second one on the same folder and port goes on with what the first one had."""
    arguments = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", f"{port}", "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    arguments += ["--artifacts-destination", str(folder / "artifacts")]
    variables = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with started(arguments, variables, folder / "mlflow.txt") as process:
        wait_for_answer(f"http://127.0.0.1:{port}/health")
        yield process
