"""A stage that is made again says what changed, by the names that a person knows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import WantedStage
from tasks.cache.named_files import NamedFiles
from tasks.cache.reuse import stage_paths, why_made_again
from tasks.cache.stages import FOLLOWED_LENGTH, stage_digests, stage_parts, what_changed
from tests.tasks.finished_run import finish_stage

pytestmark = pytest.mark.usefixtures("at_the_root")
CONFIG = Path("tests/e2e/configs/small.yaml")


@pytest.fixture
def reward(tmp_path: Path) -> Path:
    path = tmp_path / "rewards" / "mine.py"
    path.parent.mkdir()
    path.write_text("import helper\n\ndef judge(response, answer):\n    return 1.0\n")
    path.with_name("helper.py").write_text("LIMIT = 1\n")
    return path


def parts(*overrides: str, rows: str = "rows") -> dict[str, dict[str, str]]:
    config, files = load_config(CONFIG, overrides), NamedFiles(lambda source: rows)
    return stage_parts(config, stage_digests(config, files), files)


@pytest.mark.parametrize(
    ("override", "stage", "why"),
    [
        ("actor.optim.lr=1.0e-5", "training", "actor.optim.lr changed"),
        ("rollout.n=8", "training", "rollout.n changed"),
        ("data.shuffle=false", "training", "data.shuffle changed"),
        ("reward.kwargs={bonus: 1}", "training", "reward.kwargs, reward.kwargs.bonus changed"),
        ("cold_start.steps=1", "cold-start", "cold_start.steps changed"),
        ("cold_start.steps=1", "training", "what comes before: cold-start changed"),
        ("evaluation.limit=2", "evaluate-base", "evaluation.limit changed"),
        ("rollout.max_response_length=9", "evaluate-base", "rollout.max_response_length changed"),
        ("merge.checkpoint=best", "merge", "merge.checkpoint changed"),
        ("merge.checkpoint=best", "evaluate-trained", "merge.checkpoint changed"),
        ("tracking.gallery_items=5", "report", "tracking.gallery_items changed"),
        ("seed=8", "prepare", "seed changed"),
    ],
)
def test_a_changed_key_is_named(override: str, stage: str, why: str) -> None:
    assert what_changed(parts()[stage], parts(override)[stage]) == why


@pytest.mark.parametrize("length", ["trainer.max_steps=9", "trainer.max_steps=null"])
def test_a_length_that_the_learning_rate_follows_is_named_in_words(length: str) -> None:
    cosine = "actor.optim.lr_scheduler_type=cosine"
    before, now = parts(cosine, "trainer.max_steps=4")["training"], parts(cosine, length)["training"]
    assert what_changed(before, now) == f"{FOLLOWED_LENGTH} changed"


def test_other_rows_are_named() -> None:
    now = parts(rows="other rows")["prepare"]
    assert what_changed(parts()["prepare"], now) == (
        "the rows of cold_start.source, the rows of data.train, the rows of data.validation changed"
    )


def test_many_keys_are_counted() -> None:
    overrides = [
        f"algorithm.{key}" for key in ("loss.clip_ratio_low=0.1", "loss.clip_ratio_high=0.4", "loss.type=gspo")
    ]
    why = what_changed(parts()["training"], parts(*overrides, "seed=8", "rollout.n=8")["training"])
    assert why.endswith(" and 1 more changed") and why.count(",") == 3


def test_a_reward_and_what_it_imports_are_named_by_their_files(reward: Path) -> None:
    override = f"reward.function={reward}:judge"
    before = parts(override)["training"]
    reward.with_name("helper.py").write_text("LIMIT = 2\n")
    assert what_changed(before, parts(override)["training"]) == f"{reward.with_name('helper.py')} changed"


def test_how_long_a_run_is_changes_no_epoch() -> None:
    assert parts()["training"] == parts("trainer.total_epochs=9")["training"]


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda run: None, "merge.checkpoint changed"),
        (lambda run: run.stage_manifest("merge").write_text("{"), "merge.json is damaged"),
        (lambda run: run.stage_manifest("merge").unlink(), None),
    ],
    ids=["a key", "damage", "never made"],
)
def test_why_a_stage_is_made_again(tmp_path: Path, happens: Callable[[RunDirectory], object], why: str | None) -> None:
    run = RunDirectory(tmp_path)
    merged = stage_paths(run, "merge")[0]
    merged.mkdir()
    (merged / "weights").write_text("weights")
    finish_stage(run, "merge", {}, merged, digest="before", parts=parts()["merge"])
    happens(run)
    wanted = WantedStage(name="merge", digest="now", parts=parts("merge.checkpoint=best")["merge"])
    found = why_made_again(run, wanted)
    assert found is why is None or str(found).endswith(str(why))
