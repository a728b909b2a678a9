"""What the tests of several rooms share: dying at a chosen moment, a user's files imported here, small files of rows,
a disk that is soon full, a small prepared run with a worker, and merged models. Libraries that take seconds to import
are imported by the fixtures that need them."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rl_core.config.run import RunConfig
    from rl_core.rewards.pool import RewardPool
    from rl_core.run_directory import RunDirectory
    from rl_core.types import Prompt, TrainGroup
    from rl_core.workers.folders import WorkerFolders
    from rl_core.workers.local_worker import LocalWorker
    from tests.rl_core.merged_models import Merged
    from tests.rl_core.small_run import OpenWorker

FILE_CALLS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir", "ftruncate", "truncate")


def _die_before_call(number: int) -> None:
    """From now on, kill this process with SIGKILL before it makes the file-changing call of that number (from 1)."""
    left = number

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in FILE_CALLS:
        setattr(os, name, dying(getattr(os, name)))


def _run_in_child(action: Callable[[], None], kill_before: int) -> int:
    """Fork, run `action`, return the raw wait status. A forked copy starts in a millisecond, a new Python does not."""
    child = os.fork()
    if child == 0:
        try:
            _die_before_call(kill_before)
            action()
            os._exit(0)
        finally:  # the child must never run on as a second pytest
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.fixture
def killed_before_each_call() -> Callable[..., int]:
    """`(prepare, action, check)`: for n = 1, 2, ... prepare afresh, run `action` in a process that SIGKILL ends before
    its n-th file-changing call, then `check()`; until `action` gets through. `every` passes over most n. Returns how
    many kills there were."""

    def run(
        prepare: Callable[[], None], action: Callable[[], None], check: Callable[[], None], *, every: int = 1
    ) -> int:
        for kills, number in enumerate(range(1, 500, every)):
            prepare()
            status = _run_in_child(action, number)
            check()
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, "the action failed by itself; its traceback is above"
                return kills
            assert os.WTERMSIG(status) == signal.SIGKILL
        raise AssertionError("the action never got through")

    return run


@pytest.fixture
def own_imports(monkeypatch) -> Iterator[None]:
    """Files of users may be imported in this process: what that adds to it is taken back."""
    known = set(sys.modules)
    libraries = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setenv("SIGHTLINE_USER_FILES", "{}")
    yield
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file and "." not in name and not file.startswith(libraries):
            del sys.modules[name]


@pytest.fixture
def write_jsonl(tmp_path) -> Callable[..., Path]:
    """`write_jsonl(rows, name)`: a JSONL file in the test's folder; a row that is text is written as it is."""

    def write(rows: Sequence[dict[str, Any] | str], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def write_image(tmp_path) -> Callable[..., Path]:
    """`write_image(name, colour)`: a PNG in the test's folder."""

    def write(name: str, colour: tuple[int, int, int] = (200, 30, 30)) -> Path:
        from tests.rl_core.data.samples import png_bytes

        path = tmp_path / name
        path.write_bytes(png_bytes(colour=colour))
        return path

    return write


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A real file system of 1 MiB; needs root, as the test container has."""
    mount = tmp_path / "disk"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)  # a failed test may have left a file open


@pytest.fixture(scope="session")
def config() -> "RunConfig":
    """Of a small run that starts from a random model."""
    from tests.rl_core.small_run import small_config

    return small_config()


@pytest.fixture(scope="session")
def prepared_run(tmp_path_factory, config) -> "RunDirectory":
    """A run folder with initial model and data; tests that write copy what they need."""
    from tests.rl_core.small_run import prepare

    return prepare(config, tmp_path_factory.mktemp("runs") / "small-test")


@pytest.fixture(scope="session")
def rewards(config) -> "Iterator[RewardPool]":
    from rl_core.rewards.pool import RewardPool

    with RewardPool(config.reward) as pool:
        yield pool


@pytest.fixture(scope="session")
def parity(config) -> "Iterator[RewardPool]":
    """A reward that random responses get in part, so that the weights move."""
    from rl_core.rewards.pool import RewardPool
    from tests.rl_core.small_run import PARITY

    with RewardPool(config.reward.model_copy(update={"function": PARITY})) as pool:
        yield pool


@pytest.fixture(scope="session")
def folders(prepared_run) -> "WorkerFolders":
    """What a worker of the small run reads."""
    from tests.rl_core.small_run import folders_of

    return folders_of(prepared_run)


@pytest.fixture(scope="session")
def shared_worker(config, prepared_run, rewards) -> "Iterator[LocalWorker]":
    from tests.rl_core.small_run import small_worker
    from tests.shared_engines import ended_with_the_folder

    worker = small_worker(config, prepared_run)
    ended_with_the_folder(worker.close)
    yield worker
    worker.close()


@pytest.fixture(scope="session")
def open_worker(shared_worker) -> "OpenWorker":
    """Opens a worker of other settings for the length of a `with`. vLLM keeps what belongs to an engine in globals of
    the process, so the shared worker's engine ends first, and starts again when it is next needed."""
    from tests.rl_core.small_run import worker_opener

    return worker_opener(shared_worker)


@pytest.fixture
def worker(shared_worker, prepared_run) -> "LocalWorker":
    """The shared worker with the initial weights and no optimizer state."""
    shared_worker.load("policy", prepared_run.initial_model)
    return shared_worker


@pytest.fixture(scope="session")
def prompts(prepared_run, config) -> "list[Prompt]":
    from tests.rl_core.small_run import first_prompts

    return first_prompts(prepared_run, config)


@pytest.fixture(scope="session")
def train_groups(prompts, config, shared_worker, prepared_run, rewards) -> "list[TrainGroup]":
    """Real rollouts of the initial model, cut to ragged lengths and given advantages, so that every token has a
    gradient (a random model earns no reward)."""
    from tests.rl_core.small_run import ragged_groups

    shared_worker.load("policy", prepared_run.initial_model)
    return ragged_groups(prompts, config, shared_worker, rewards)


@pytest.fixture(scope="session")
def merged(tmp_path_factory) -> "Callable[[str], Merged]":
    """Family -> merged model. Sizes are the smallest that vLLM's attention kernels take."""
    from tests.rl_core.merged_models import make_merged

    made: dict[str, Merged] = {}

    def get(family: str) -> "Merged":
        if family not in made:
            folder = tmp_path_factory.mktemp(family) / "my [old] models *"  # libraries read such a path as a pattern
            folder.mkdir()
            made[family] = make_merged(folder, family)
        return made[family]

    return get
