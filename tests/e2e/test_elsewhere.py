"""A run that is killed, and whose machine is gone, is continued on an empty one and ends with the same results."""

import shutil
from pathlib import Path

import psutil
import pytest

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.storage.place import Place
from rl_core.storage.store import RunStore
from tasks.storage.contents import PROGRESS
from tests.e2e.processes import run_of
from tests.e2e.runs import environment, fingerprint, sightline
from tests.results import differences
from tests.rl_core.storage.servers import s3_server
from tests.servers import started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]


def step_copied(name: str) -> int:
    """The step that training had come to, as the storage tells."""
    try:
        progress = RunStore(Place.at("s3://runs/sightline").below(name), verify=True).records().get(PROGRESS)
    except OSError:
        return 0  # what is listed may be replaced before it is read
    return progress.facts["step"] if progress else 0


def of_checkpoint(name: str) -> str | None:
    """The checkpoint that a result belongs to."""
    parts = Path(name).parts
    return parts[1] if parts[0] == "checkpoints" else None


def test_a_run_is_continued_from_its_copy_on_an_object_store(
    finished: RunDirectory, new_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, run = run_of(new_home)
    with s3_server() as s3:
        monkeypatch.setenv("SIGHTLINE_STORAGE", "s3://runs/sightline")
        with started(arguments, environment(new_home), new_home / "output.txt") as killed:
            wait_until(lambda: step_copied(run.name) >= 3 or killed.poll() is not None, "a checkpoint is copied")
            children = psutil.Process(killed.pid).children(recursive=True)
            killed.kill()
            psutil.wait_procs(children, timeout=60)
        shutil.rmtree(new_home / "runs")
        s3.stop()
        away = sightline("run", "--resume", run.name, "--runs-dir", str(new_home / "runs"), home=new_home, check=False)
        assert away.returncode == 1 and "s3://runs/sightline does not answer" in away.stderr
        s3.start()
        sightline("run", "--resume", run.name, "--runs-dir", str(new_home / "runs"), home=new_home, timeout=700)
        (fetched,) = [event["step"] for event in read(run.events) if event["kind"] == "storage-fetched"]
        assert fetched >= 3
        assert "cold-start: fetched from the storage" in run.log.read_text()
        assert "without a flow run id" not in run.log.read_text()
        expected, found = fingerprint(finished), fingerprint(run)
        kept = {path.name for path in run.checkpoints.iterdir()}
        assert {"step-000006"} <= kept
        # Of the checkpoints the newest and the best are fetched, and not all that the first machine still had.
        fetched_too = {name: sha for name, sha in expected.items() if of_checkpoint(name) in (None, *kept)}
        assert not differences(fetched_too, found)
