"""The code that a stage is said to call is what it calls: each kind of stage is made once, for real, and every function
of this project that runs meanwhile belongs to a module that counts for it."""

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import merge_tolerance
from rl_core.evaluation.folder import write_evaluation
from rl_core.evaluation.response_file import ResponseFile
from rl_core.export.verification import verify_merged
from rl_core.loop.session import Session, open_session
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest
from tasks.cache.source_closure import OWN_PACKAGES, SOURCES, is_within
from tasks.cache.stage_code import NO_RESULT, STAGE_CODE, code_of
from tasks.preparation import prepare_run

CONFIG = "tests/e2e/configs/small.yaml"
SHORT = ("cold_start.steps=1", "trainer.max_steps=1", "trainer.val_freq=1")
UNASKED = ("rl_core.rewards", "rl_core.rollout.generator")
"""A session has scoring processes and a worker has a generator, which stages that draw no response ask for nothing."""
REWARDS = ("rl_core.rewards.builtin.count",)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(SOURCES)
    for kind in STAGE_CODE:  # what runs while a module is imported is no part of a stage
        for module in code_of(kind, imported=REWARDS):
            importlib.import_module(module)
    importlib.import_module("vllm")
    return load_config(Path(CONFIG), SHORT)


@contextmanager
def noting(modules: set[str]) -> Iterator[None]:
    """Adds the name of every module of this project of which a function is called in this process meanwhile."""
    seen: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.setdefault(frame.f_code)  # once a call: without a result, the call itself is not traced

    tracing = sys.gettrace()
    threading.settrace(note)
    sys.settrace(note)
    try:
        yield
    finally:
        sys.settrace(tracing)
        threading.settrace(tracing)  # type: ignore[arg-type]
        modules |= {name for code in seen if code.co_flags & CO_OPTIMIZED and (name := _module_of(code))}


def _module_of(code: CodeType) -> str | None:
    file = Path(code.co_filename)
    if not file.is_relative_to(SOURCES) or file.relative_to(SOURCES).parts[0] not in OWN_PACKAGES:
        return None
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def test_every_function_that_makes_a_stage_is_of_a_module_that_counts_for_it(config: RunConfig, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)

    def session() -> Session:
        return open_session(config, run, progress=SilentProgress(), stop=StopRequest())

    called: dict[str, set[str]] = {kind: set() for kind in STAGE_CODE}
    with noting(called["prepare"]):
        prepare_run(config, run, progress=SilentProgress())
    with noting(called["cold-start"]), session() as opened:
        opened.run_cold_start()
    with noting(called["train"]), session() as opened:
        opened.train_epoch(1)
    with noting(called["evaluate"]), session() as opened:
        items = opened.evaluate("trained", ResponseFile(tmp_path / "answers", key="k"))
        write_evaluation(run.evaluation("trained"), items)
    run.merged_model.mkdir()
    with noting(called["merge"]), session() as opened:
        checkpoint = opened.export_trained(run.merged_model)
        opened.close()
        # Of one engine, because each works in a process of its own, in which nothing of this project runs.
        verify_merged(run.merged_model, checkpoint.folder / "probe", merge_tolerance(config), engines=["transformers"])
    for kind in ("cold-start", "merge"):
        called[kind] = {name for name in called[kind] if not is_within(name, UNASKED)}
    counted = {kind: code_of(kind, imported=REWARDS).keys() for kind in STAGE_CODE}
    missing = {
        kind: [name for name in sorted(called[kind] - counted[kind]) if not is_within(name, NO_RESULT)]
        for kind in STAGE_CODE
    }
    assert missing == {kind: [] for kind in STAGE_CODE}
    assert {"rl_core.training.supervised", "rl_core.workers.local_worker"} <= called["cold-start"]
    assert {"rl_core.loop.step", "rl_core.algorithms.policy_loss"} <= called["train"]
    assert "rl_core.evaluation.evaluate" in called["evaluate"] and "rl_core.export.verification" in called["merge"]
