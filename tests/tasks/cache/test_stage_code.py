"""What computes a stage is all of its code, and no more than that."""

import sys
from pathlib import Path

import pytest

from tasks.cache.packages import CARRYING, COMPUTING
from tasks.cache.source_closure import OWN_PACKAGES, SOURCES, closure, is_within
from tasks.cache.stage_code import NO_RESULT, STAGE_CODE, code_of

AROUND = (
    "flows",
    "rl_core.storage",
    "rl_core.tracking",
    *(
        f"tasks.{path.stem}"
        for path in (SOURCES / "tasks").iterdir()
        if path.stem not in ("preparation", "initial_model")
    ),
)
"""Trackers, pages, Prefect, storage, the command line."""

MATTERS = {
    "prepare": {"rl_core.data.preparation", "rl_core.data.chat", "rl_core.models.tiny", "tasks.initial_model"},
    "cold-start": {"rl_core.training.supervised", "rl_core.models.policy", "rl_core.loop.cold_start"},
    "train": {
        "rl_core.algorithms.policy_loss",
        "rl_core.loop.step",
        "rl_core.models.tree_attention",
        "rl_core.rewards.server",
        "rl_core.rollout.vllm_engine",
        "rl_core.training.optimizer",
        "rl_core.workers.local_worker",
    },
    "evaluate": {
        "rl_core.evaluation.evaluate",
        "rl_core.evaluation.folder",
        "rl_core.rewards.server",
        "rl_core.rollout.vllm_engine",
        "rl_core.training.saved_model",
    },
    "merge": {"rl_core.export.merged_check", "rl_core.models.loading", "rl_core.training.saved_model"},
}
FOREIGN = {
    "prepare": {"rl_core.training", "rl_core.algorithms", "rl_core.loop", "rl_core.rollout", "rl_core.rewards"},
    "cold-start": {"rl_core.algorithms", "rl_core.rewards", "rl_core.rollout"},
    "train": {"rl_core.export"},
    "evaluate": {"rl_core.algorithms", "rl_core.loop.step", "rl_core.training.optimizer", "rl_core.export"},
    "merge": {"rl_core.algorithms", "rl_core.rewards", "rl_core.training.optimizer"},
}


@pytest.mark.parametrize("kind", STAGE_CODE)
def test_the_code_of_a_stage_holds_what_matters_and_nothing_foreign(kind: str) -> None:
    found = code_of(kind)
    assert found.keys() >= MATTERS[kind]
    assert [name for name in found if is_within(name, FOREIGN[kind])] == []


@pytest.mark.parametrize("kind", STAGE_CODE)
def test_no_tracker_page_or_flow_computes_a_result(kind: str) -> None:
    found = code_of(kind, imported=["rl_core.rewards.builtin.math"])
    assert [name for name in found if is_within(name, AROUND)] == []


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_of_the_built_in_rewards_the_configured_ones_count(kind: str) -> None:
    found = code_of(kind, imported=["rl_core.rewards.builtin.math"])
    assert {"rl_core.rewards.builtin.math", "rl_core.rewards.grading"} <= found.keys()
    assert "rl_core.rewards.builtin.r1v" not in found


def test_what_is_left_out_is_there() -> None:
    """A renamed module must not be left out, or found, by its old name."""
    left_out = {name for code in STAGE_CODE.values() for name in (*code.without, *code.entries)} | set(NO_RESULT)
    for name in left_out:
        place = SOURCES.joinpath(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_every_package_that_is_called_is_known_to_compute_or_not() -> None:
    """A new dependency: does its version decide a result? Then it belongs into COMPUTING, else into CARRYING."""
    rewards = [f"rl_core.rewards.builtin.{path.stem}" for path in Path(SOURCES, "rl_core/rewards/builtin").glob("*.py")]
    sources = [source for kind in STAGE_CODE for source in code_of(kind, imported=rewards).values()]
    packages = {name.partition(".")[0] for source in sources for name in source.names}
    unknown = packages - COMPUTING.keys() - CARRYING - sys.stdlib_module_names - set(OWN_PACKAGES)
    assert unknown == set()


def test_reading_the_sources_imports_nothing_of_them() -> None:
    before = set(sys.modules)
    closure(["rl_core.loop.session"])
    assert {name for name in set(sys.modules) - before if name.startswith(OWN_PACKAGES)} == set()
