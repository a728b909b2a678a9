"""A run that a worker carries out is broken on purpose and continued in the documented way (docs/operations.md, "When
something fails"): it ends with the results of a run that nothing happened to, to the bit.

What is broken elsewhere: a reward that raises past its share, and a stop in the evaluation (tests/flows/test_retry.py);
kills at a terminal, at any moment and in each replacement of a file (chaos.py); MLflow
(test_outages.py).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest

from flows.commands.server import DEVICES
from rl_core.checkpoints.manifest import read_checkpoint, verify
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import PREFECT, has_recorded, prefect
from tests.e2e.runs import (
    REPOSITORY,
    SMALL,
    command,
    environment,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)
from tests.processes import answers
from tests.results import differences
from tests.servers import free_port, started, wait_for_answer, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(3600)]

WEBHOOK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock as Block
block = Block(name="inbox", url=sys.argv[1], json_data={"text": "{{subject}} {{body}}"})
print(block.save("inbox"))
"""

FINAL = ("Completed", "Crashed", "Failed", "Cancelled", "Interrupted")

STEP_OF_TROUBLE = 3
"""Of six: the first epoch is trained, the checkpoint of step 2 is kept."""


@dataclass(frozen=True, kw_only=True)
class Office:
    """A Prefect server's address and database, and where its worker's runs lie."""

    home: Path
    port: int

    @property
    def variables(self) -> dict[str, str]:
        return environment(self.home) | {"PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api"}

    @property
    def runs_dir(self) -> Path:
        return self.home / "runs"

    def prefect(self, *arguments: str) -> str:
        return prefect(*arguments, variables=self.variables)

    def doctor(self) -> str:
        arguments = command("doctor", "--runs-dir", str(self.runs_dir))
        done = subprocess.run(arguments, env=self.variables, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout

    def state(self, flow_run: str) -> str:
        return json.loads(self.prefect("flow-run", "inspect", flow_run, "-o", "json"))["state"]["name"]

    def waits_for(self, flow_run: str, state: str, seconds: float = 600.0) -> float:
        """Seconds until the flow run has the state; another final state is an error at once."""
        start = time.monotonic()
        while (now := self.state(flow_run)) != state:
            assert now not in FINAL and time.monotonic() < start + seconds, f"{now}, not {state}: {self.worker_says()}"
            time.sleep(0.5)
        return time.monotonic() - start

    def worker_says(self) -> str:
        return (self.home / "worker.txt").read_text()[-8000:]

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        arguments = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(self.port)]
        with started(arguments, self.variables, self.home / "server.txt") as process:
            wait_for_answer(f"http://127.0.0.1:{self.port}/api/health")
            yield process

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        arguments = [*PREFECT, "worker", "start", "--pool", "local"]
        with started(arguments, self.variables, self.home / "worker.txt") as process:
            yield process

    def begin(self) -> tuple[str, RunDirectory]:
        """Start the small run by its deployment, and wait until it is in the middle of training."""
        overrides = [f"tracking.mlflow_uri=sqlite:///{self.home}/mlflow.db"]
        given = {"config": str(SMALL), "overrides": overrides, "runs_dir": str(self.runs_dir)}
        chosen = [part for name, value in given.items() for part in ("--param", f"{name}={json.dumps(value)}")]
        output = self.prefect("deployment", "run", "baseline/quickstart", *chosen)
        flow_run = re.search(r"UUID: (\S+)", output).group(1)
        wait_until(lambda: any(self.runs_dir.glob("*/metrics.jsonl")), "training begins", 1200.0)
        run = the_run(self.runs_dir)
        wait_until(lambda: has_recorded(run, STEP_OF_TROUBLE), f"step {STEP_OF_TROUBLE} is recorded", 600.0)
        return flow_run, run


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(home=tmp_path, port=free_port())


@contextmanager
def opened(office: Office) -> Iterator[subprocess.Popen[bytes]]:
    """A server that knows the deployments."""
    with office.server() as server:
        office.prefect("work-pool", "create", "local", "--type", "process")
        office.prefect("work-queue", "create", DEVICES, "--pool", "local", "--limit", "1")
        office.prefect("deploy", "--all", "--no-prompt")
        yield server


def owner_of(run: RunDirectory) -> psutil.Process:
    """The process that writes the run: the worker's child."""
    return psutil.Process(int(run.lock.read_text()))


def kill_with_children(process: psutil.Process) -> None:
    """What an out-of-memory killer or a lost machine does."""
    answers(process, psutil.Process.kill)


def is_unbroken(run: RunDirectory, finished: RunDirectory) -> bool:
    assert differences(fingerprint(finished), fingerprint(run)) == []
    return len(fingerprint(run)) > 10


def test_a_killed_flow_process_is_crashed_within_seconds_and_its_retry_continues(
    finished: RunDirectory, office: Office
) -> None:
    with opened(office), office.worker():
        flow_run, run = office.begin()
        kill_with_children(owner_of(run))
        assert office.waits_for(flow_run, "Crashed", 120.0) < 60.0
        office.prefect("flow-run", "retry", flow_run)
        office.waits_for(flow_run, "Completed")
    assert is_unbroken(run, finished)


def test_a_worker_and_its_flow_are_killed_and_doctor_makes_the_retry_possible(
    finished: RunDirectory, office: Office
) -> None:
    with opened(office):
        with office.worker() as worker:
            flow_run, run = office.begin()
            kill_with_children(psutil.Process(worker.pid))
            worker.wait()
        assert office.state(flow_run) == "Running"
        with office.worker():
            assert "marked Crashed" in office.doctor()
            office.prefect("flow-run", "retry", flow_run)
            office.waits_for(flow_run, "Completed")
    assert is_unbroken(run, finished)


def test_a_flow_outlives_a_killed_worker_and_server_and_reports_its_end_to_the_next_server(
    finished: RunDirectory, office: Office
) -> None:
    with opened(office) as server, office.worker() as worker:
        flow_run, run = office.begin()
        owner = owner_of(run)
        os.kill(worker.pid, signal.SIGKILL)
        os.killpg(server.pid, signal.SIGKILL)
        worker.wait()
        server.wait()
        owner.wait(timeout=1200)
    with office.server():
        assert office.state(flow_run) == "Running"
        assert "marked Completed" in office.doctor()
        assert office.state(flow_run) == "Completed"
    assert is_unbroken(run, finished)


@contextmanager
def inbox() -> Iterator[tuple[str, list[str]]]:
    """The address of a web server, and the texts that are posted to it."""
    posted: list[str] = []

    class Keeping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Keeping) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", posted
        server.shutdown()


def test_a_set_that_ends_badly_reaches_the_notification_block(office: Office) -> None:
    with opened(office), office.worker(), inbox() as (address, posted):
        made = subprocess.run(
            [sys.executable, "-c", WEBHOOK, address],
            env=office.variables, cwd=REPOSITORY, capture_output=True, text=True, check=True,
        )  # fmt: skip
        filled = office.home / "automations.yaml"
        filled.write_text((REPOSITORY / "automations.yaml").read_text().replace("BLOCK_ID", made.stdout.split()[-1]))
        office.prefect("automation", "create", "--from-file", str(filled))
        name = "reproduce-baselines/reproduce-baselines"
        output = office.prefect("deployment", "run", name, "--param", 'baselines=["qwen2_5_vl_3b_geo3k"]')
        office.waits_for(re.search(r"UUID: (\S+)", output).group(1), "Failed")
        wait_until(lambda: bool(posted), "the notification arrives")
    (text,) = posted
    assert "there is no baseline qwen2_5_vl_3b_geo3k; did you mean qwen2_5_vl_3b_geo3k_" in text
    assert "/flow-run/" in text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that can be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_is_full_at_a_checkpoint(finished: RunDirectory, small_disk: Path) -> None:
    home, filler = small_disk, small_disk / "filler"
    with started(command(*run_arguments(home)), environment(home), home / "output.txt") as process:
        kept = home / "runs" / finished.name / "checkpoints" / "step-000002"
        wait_until(lambda: kept.is_dir() or process.poll() is not None, "the first checkpoint", 1200.0)
        with filler.open("wb", buffering=0) as stream, suppress(OSError):  # the run takes its part meanwhile
            while shutil.disk_usage(home).free > 1 << 20:
                stream.write(bytes(1 << 18))
        assert process.wait(timeout=1200) == 1, (home / "output.txt").read_text()
    run = the_run(home / "runs")
    assert "free some" in (home / "output.txt").read_text()  # said by the check before a checkpoint, or of a write
    left = list(run.checkpoints.iterdir())
    assert left  # a run on a fast machine gets a step further before the disk is full
    for folder in left:
        verify(read_checkpoint(folder))
    filler.unlink()
    sightline("run", "--resume", run.name, "--runs-dir", str(home / "runs"), home=home, timeout=1800)
    assert is_unbroken(run, finished)
