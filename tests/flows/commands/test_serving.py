"""A process that serves and dies is named with its cause and comes back, and the others go on."""

import os
import signal
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands import serving
from flows.commands.serving import PageServer, Serving
from tests.servers import free_port

SERVES = """
import http.server, os, signal, sys, threading
port, starts, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(starts, "a") as file:
    file.write(".")
number = os.stat(starts).st_size
if mode == "dies for ever" and number > 1:
    print("a line of a traceback\\n" * 30)
    sys.exit(f"start {number}: the database is locked")
if mode != "lives" and number == 1:
    print("a last word", flush=True)
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAUSES", (0.2, 0.2))


def server(folder: Path, name: str, mode: str, when_up: Callable[[], None] = lambda: None) -> PageServer:
    port = free_port()
    command = [sys.executable, "-c", SERVES, str(port), str(folder / name), mode]
    return PageServer(name=name, port=port, command=command, health="/", when_up=when_up)


def served(*servers: PageServer) -> tuple[int, str]:
    """The exit code, and what was printed as one line."""
    text = StringIO()
    with Serving(Console(file=text, width=120)) as serves:
        assert serves.start(servers)
        code = serves.wait()
    return code, " ".join(text.getvalue().split())


def test_a_server_that_dies_is_named_with_its_cause_and_restarted_while_the_others_go_on(tmp_path: Path) -> None:
    seen: list[float] = []

    def up() -> None:
        seen.append(time.monotonic())
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    code, printed = served(server(tmp_path, "First", "dies once", up), server(tmp_path, "Second", "lives"))
    assert code == 0
    assert "warning First was killed by signal SIGKILL, as when a machine or a container runs out of memory" in printed
    assert "it is started again in 0.2 s, and the others go on" in printed
    assert "a last word" not in printed, "it does not say why it was killed"
    assert "Second was" not in printed
    assert [len((tmp_path / name).read_text()) for name in ("First", "Second")] == [2, 1]


def test_a_server_that_dies_again_and_again_is_given_up_with_what_to_do(tmp_path: Path) -> None:
    code, printed = served(server(tmp_path, "First", "dies for ever"))
    assert code == 1
    once = " ".join(["a line of a traceback"] * 3 + ["start 2: the database is locked"])
    assert f"with exit code 1: it is started again in 0.2 s, and the others go on. Its last lines: {once} " in printed
    assert "failed First ended by itself, with exit code 1: it has died 3 times in a row" in printed
    assert "Correct what its last lines say" in printed
    assert "The others go on. Its last lines: a line" in printed
    assert printed.endswith("start 3: the database is locked")
    assert len((tmp_path / "First").read_text()) == 3
