"""What a killed process leaves in the machine's temporary folder is gone after the next start, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from flows.process.temporary_folder import PREFIX, sweep
from tests.processes import living
from tests.servers import wait_until

_WORK = """
import os, subprocess, sys, tempfile
from flows.process.temporary_folder import own_temporary_folder
folder = own_temporary_folder()
assert own_temporary_folder() is folder and tempfile.gettempdir() == str(folder)
open(os.path.join(tempfile.gettempdir(), "vllm_dist_0"), "w").close()
child = [sys.executable, "-c", "import sys, tempfile; tempfile.mkdtemp(); print('ready', flush=True); sys.stdin.read()"]
"""
_ALONE = _WORK + "print(folder, flush=True); sys.stdin.read()"
_WITH_CHILD = _WORK + (
    "started = subprocess.Popen(child, stdin=sys.stdin, stdout=subprocess.PIPE); started.stdout.readline()\n"
    "print(folder, started.pid, flush=True); sys.stdin.read()"
)


@contextmanager
def working(machine: Path, script: str = _ALONE) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that owns a temporary folder until its input ends, and what it says about itself."""
    variables = os.environ | {"TMPDIR": str(machine)}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def folders(machine: Path) -> set[str]:
    return {path.name for path in machine.iterdir()}


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with working(tmp_path) as (process, (folder,)):
        assert Path(folder).parent == tmp_path and (Path(folder) / "vllm_dist_0").exists()
        process.communicate()
        assert process.returncode == 0
    assert folders(tmp_path) == set()


def test_the_next_start_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    with working(tmp_path) as (process, (folder,)):
        kill(process)
    assert (Path(folder) / "vllm_dist_0").exists(), "the control: it was left"
    with working(tmp_path) as (_, (other,)):
        assert folders(tmp_path) == {Path(other).name}


def test_a_folder_of_a_living_process_stays(tmp_path: Path) -> None:
    with ExitStack() as stack:
        living = [stack.enter_context(working(tmp_path))[1][0] for _ in range(2)]
        sweep(tmp_path)
        assert folders(tmp_path) == {Path(folder).name for folder in living}


def test_the_folder_that_a_child_of_a_killed_process_uses_stays_until_the_child_ends(tmp_path: Path) -> None:
    with working(tmp_path, _WITH_CHILD) as (process, (folder, child)):
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        sweep(tmp_path)
        assert folders(tmp_path) == {Path(folder).name}
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: living([int(child)]) == [], "the child has ended")
        sweep(tmp_path)
        assert folders(tmp_path) == set()


def test_folders_without_a_known_dead_owner_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner").write_text("1")
    machine = tmp_path / "machine"
    for name in ("vllm_dist_0", "tmpabc", f"{PREFIX}just-made"):
        (machine / name).mkdir(parents=True)
    (machine / f"{PREFIX}file").touch()
    (machine / f"{PREFIX}link").symlink_to(elsewhere)
    before = folders(machine)
    sweep(machine)
    assert folders(machine) == before and (elsewhere / "owner").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}other"
    folder.mkdir()
    (folder / "owner").write_text("1")
    os.chown(folder, 12345, 12345)
    sweep(tmp_path)
    assert folder.exists()
    os.chown(folder, 0, 0)
    sweep(tmp_path)
    assert not folder.exists(), "the control: of this user it would be left"


def test_a_process_of_a_process_has_its_folder_beside_it(tmp_path: Path) -> None:
    with working(tmp_path) as (_, (folder,)), working(Path(folder)) as (_, (inner,)):
        assert Path(inner).parent == tmp_path
