"""A pretended card for each test, and the product's command line on it."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pretended_card.build import build
from tests.pretended_card.card import Card

ROOT = Path(__file__).parents[2]

# A run of two steps with eight sequences each and everything around them.
SMALL = {
    "data.train.size": 16,
    "data.validation.size": 4,
    "data.rollout_batch_size": 4,
    "cold_start.source.size": 16,
    "cold_start.steps": 2,
    "cold_start.batch_size": 8,
    "reward.function": "tests/pretended_card/uneven_reward.py:score",
    "rollout.n": 2,
    "rollout.max_response_length": 4,
    "rollout.gpu_memory_utilization": 0.5,
    # Compiled models and graphs are not computed on the card; test_engine.py starts them.
    "rollout.enforce_eager": True,
    "actor.global_batch_size": 4,
    "trainer.total_epochs": 1,
    "trainer.max_steps": 2,
    "trainer.val_freq": 2,
    "trainer.save_freq": 1,
}


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Every test of this folder is a part of the rehearsal."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.rehearsal)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the card's libraries."""
    if find_spec("vllm.cumem_allocator") is None:
        pytest.fail("the gpu extra is not installed here: run `make rehearse`, which makes an environment with it")
    folder = tmp_path_factory.mktemp("card")
    build(folder)
    card = Card(libraries=folder, state=tmp_path_factory.mktemp("state"))
    # Debian's Python has a sitecustomize of its own, which would come before the card's, and nothing would be computed.
    asked = "import torch; print(int((torch.arange(4, device='cuda') * 2).sum()))"
    done = subprocess.run(
        [sys.executable, "-c", asked], env=card.environment(), capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != "12":
        pytest.fail(f"the pretended card computes nothing; make it with another Python: {done.stdout}{done.stderr}")
    return folder


NOT_DONE = ("answered and not done", "launched and not computed")
"""Functions of CUDA's libraries that only answered that they had succeeded, and operations without a form for the host;
each test notes how often it met them."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the card did not do, so that nobody takes it for shown."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    ends = [dict(report.user_properties) for report in reports if getattr(report, "when", None) == "teardown"]
    for title in NOT_DONE:
        total: Counter[str] = Counter()
        for noted in ends:
            total.update(noted.get(title, {}))
        if total:
            listed = ", ".join(f"{name} {times}" for name, times in total.most_common(60))
            terminalreporter.write_line(f"{title}: {listed}")


@pytest.fixture
def card(libraries: Path, tmp_path: Path, record_property: Callable[[str, object], None]) -> Iterator[Card]:
    """A card that nothing uses yet; after the test nothing may use it any more."""
    state = tmp_path / "card"
    state.mkdir()
    card = Card(libraries=libraries, state=state)
    yield card
    for title, names in zip(NOT_DONE, (card.calls().get("not written", {}), card.left_out()), strict=True):
        record_property(title, dict(names))
    left = [process for process in psutil.process_iter() if _is_on(process, state)]
    for process in left:
        process.kill()
    assert not left, f"processes that outlived the test: {left}"


def _is_on(process: psutil.Process, state: Path) -> bool:
    try:
        return process.environ().get("PRETENDED_CARD_STATE") == str(state)
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return False


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs `sightline` on a card.

    Attributes:
        card: The card.
        runs: The folder of the runs.
    """

    card: Card
    runs: Path

    @property
    def output(self) -> Path:
        """What its processes print."""
        return self.runs.with_suffix(".txt")

    def start(self, changes: dict[str, Any], *, cards: int = 1) -> "subprocess.Popen[bytes]":
        """Start a training of the quickstart's model with these changes of `SMALL`."""
        assigned = [f"--set={key}={json.dumps(value)}" for key, value in (SMALL | changes).items()]
        command = [sys.executable, "-m", "flows.cli", "run", "configs/quickstart.yaml", f"--runs-dir={self.runs}"]
        environment = self.card.environment(cards=cards, gib=8.0, is_undefined_after_wake=True)
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [*command, *assigned],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, changes: dict[str, Any], *, cards: int = 1) -> "Result":
        """Run it to its end."""
        process = self.start(changes, cards=cards)
        try:
            process.wait(timeout=900)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Result(code=process.returncode, output=self.output.read_text(), runs=self.runs)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    Attributes:
        code: Its exit code.
        output: What it printed.
        runs: The folder that holds it.
    """

    code: int
    output: str
    runs: Path

    @property
    def folder(self) -> Path:
        """The folder of the only run."""
        (folder,) = (path for path in self.runs.iterdir() if (path / "metrics.jsonl").is_file())
        return folder

    def steps(self) -> list[dict[str, Any]]:
        """The metrics of its training steps."""
        records = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [record for record in records if "actor/grad_norm" in record]


@pytest.fixture
def runner(card: Card, tmp_path: Path) -> Runner:
    """The product's command line on a card of its own."""
    return Runner(card=card, runs=tmp_path / "runs")
