"""What is removed is what was shown, and nothing goes with which something would be lost."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rl_core.files import atomic_write_json
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.attempts import remember
from tasks.cache.manifests import altered_output, read_manifest, read_manifests
from tasks.cache.reuse import adopt
from tasks.housekeeping.removal import Cleaning, Rule, carry_out_cleaning, plan_cleaning
from tests.tasks.finished_run import finish_stage
from tests.tasks.housekeeping.runs import NOW, finished
from tests.tasks.tracking.test_registration import BASE, BETTER, registered

EVERY_RUN = Rule(older_than=timedelta(days=-1))


def planned(runs_dir: Path, **in_use: str) -> Cleaning:
    return plan_cleaning(runs_dir, EVERY_RUN, NOW, in_use=in_use)


def kept(runs_dir: Path, **in_use: str) -> dict[str, str | None]:
    return {choice.run.name: choice.kept for choice in planned(runs_dir, **in_use).kept}


def names(cleaning: Cleaning) -> set[str]:
    return {choice.run.name for choice in cleaning.removed}


def test_a_plan_changes_nothing_and_carrying_it_out_removes_what_it_named(tmp_path: Path) -> None:
    runs = [finished(tmp_path), finished(tmp_path, "seed=2")]
    plan = planned(tmp_path)
    assert names(plan) == {run.name for run in runs} and all(run.config.is_file() for run in runs)
    done = carry_out_cleaning(plan, tmp_path)
    assert (names(done), done.num_bytes) == (names(plan), plan.num_bytes)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_started_or_changed_after_the_plan_stays(tmp_path: Path) -> None:
    started, changed, gone = (finished(tmp_path, f"seed={seed}") for seed in (1, 2, 3))
    plan = planned(tmp_path)
    remember(changed, "00000000-0000-0000-0000-000000000000")
    with RunLock(started.lock):
        done = carry_out_cleaning(plan, tmp_path)
    assert names(done) == {gone.name}
    assert {choice.run.name: choice.kept for choice in done.kept} == {
        started.name: f"the process with pid {os.getpid()} writes it",
        changed.name: "somebody wrote to it in the meantime",
    }


def test_the_rest_of_a_killed_removal_goes_too(tmp_path: Path) -> None:
    (tmp_path / ".some-run.tmp-77" / "data").mkdir(parents=True)
    carry_out_cleaning(planned(tmp_path), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("record", [{"status": "good"}, [], "torn"])
def test_a_good_baseline_stays(tmp_path: Path, record: object) -> None:
    good, regressed = finished(tmp_path), finished(tmp_path, "seed=2")
    good.reproduction.write_text(record if isinstance(record, str) else json.dumps(record))
    atomic_write_json(regressed.reproduction, {"status": "regressed"})
    assert kept(tmp_path).keys() == {good.name}


def test_a_run_that_somebody_works_with_stays(tmp_path: Path) -> None:
    run = finished(tmp_path)
    assert kept(tmp_path, **{run.name: "a set needs it"}) == {run.name: "a set needs it"}


def test_a_run_that_another_config_names_stays(tmp_path: Path) -> None:
    source, longer = finished(tmp_path), finished(tmp_path, tag="20260101T000000")
    other = finished(tmp_path, "seed=2")
    with other.config.open("a") as text:
        text.write(f"# started from {longer.merged_model}\n")
    assert kept(tmp_path) == {longer.name: f"the config of {other.name} names it"}
    assert source.name in names(planned(tmp_path))


def taken_over(tmp_path: Path) -> tuple[RunDirectory, RunDirectory]:
    """A run, and another one that took two epochs over from it; retention removed the first one's checkpoint."""
    source, other = finished(tmp_path), finished(tmp_path, "seed=2")
    for epoch, step in ((1, 1), (2, 2)):
        checkpoint = source.checkpoints / f"step-{step:06d}" / "weights"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.write_text(f"weights of {step}")
        adopt(
            finish_stage(source, f"train-epoch-{epoch:03d}", {}, source.metrics, checkpoint), source=source, into=other
        )
    for run in (source, other):
        (run.checkpoints / "step-000001" / "weights").unlink()
    return source, other


def test_a_source_whose_taker_has_copies_or_links_of_its_own_may_go(tmp_path: Path) -> None:
    source, other = taken_over(tmp_path)
    plan = planned(tmp_path, **{other.name: "it stays"})
    assert names(plan) == {source.name}
    assert plan.num_bytes < sum(path.stat().st_blocks * 512 for path in source.root.rglob("*") if path.is_file())
    carry_out_cleaning(plan, tmp_path)
    manifest = read_manifest(other, "train-epoch-002")
    assert manifest is not None and altered_output(other.root, manifest.outputs) is None


def test_the_champion_stays_and_other_versions_may_go(new_database: Callable[[], str], tmp_path: Path) -> None:
    uri = new_database()
    runs_dir = tmp_path / "runs"
    champion = registered(uri, runs_dir, 1, BETTER)
    named, plain, unknown = (
        registered(uri, runs_dir, 2, BASE),
        registered(uri, runs_dir, 3, BASE),
        finished(runs_dir, "seed=4"),
    )
    client = MlflowClient(tracking_uri=uri)
    (version,) = [
        one for one in client.search_model_versions("name = 'counting'") if one.tags["sightline.run"] == named.name
    ]
    client.set_registered_model_alias("counting", "production", version.version)
    for run in (champion, named, plain, unknown):
        run.config.write_text(run.config.read_text().replace("mlflow_uri: null", f"mlflow_uri: {uri}"))
    assert names(planned(runs_dir)) == {plain.name}
    assert kept(runs_dir) == {
        champion.name: "its model has the alias champion",
        named.name: "its model has the alias production",
        unknown.name: f"its model is not in the registry of {uri}, where a champion would be",
    }


@pytest.mark.parametrize("address", ["sqlite:///no-such-folder/mlflow.db", "http://127.0.0.1:9"])
def test_a_merged_model_stays_while_nobody_can_tell_whether_it_is_a_champion(tmp_path: Path, address: str) -> None:
    run, unmerged = finished(tmp_path), finished(tmp_path, "seed=2")
    for one in (run, unmerged):
        one.config.write_text(one.config.read_text().replace("mlflow_uri: null", f"mlflow_uri: {address}"))
    unmerged.stage_manifest("merge").unlink()
    (unmerged.merged_model / "model.safetensors").unlink()
    (unmerged.merged_model / "README.md").unlink()
    unmerged.merged_model.rmdir()
    assert names(planned(tmp_path)) == {unmerged.name}
    reason = kept(tmp_path)[run.name]
    assert reason is not None and reason.startswith("it cannot be found out whether its model is a champion")
    assert not Path("no-such-folder").exists()


def test_stages_that_were_made_again_go_alone_and_also_from_a_run_that_must_stay(tmp_path: Path) -> None:
    run, other = finished(tmp_path), finished(tmp_path, "seed=2")
    good = finished(tmp_path, "seed=3")
    atomic_write_json(good.reproduction, {"status": "good"})
    before = {each.name: read_manifests(each) for each in (run, good, other)}
    for each in (run, good):
        (each.earlier / "abc" / "merged").mkdir(parents=True)
        (each.earlier / "abc" / "merged" / "weights").write_bytes(b"1" * 100_000)
        os.link(each.report, each.earlier / "abc" / "report.html")
    with RunLock(good.lock):  # it is running
        plan = plan_cleaning(tmp_path, Rule(earlier=True), NOW, in_use={})
        assert [choice.name for choice in plan.removed] == [f"{run.name}/earlier"]
    plan = plan_cleaning(tmp_path, Rule(earlier=True), NOW, in_use={run.name: "a set needs it"})
    assert {choice.name for choice in plan.removed} == {f"{each.name}/earlier" for each in (run, good)}
    done = carry_out_cleaning(plan, tmp_path)
    assert (len(done.removed), done.kept, done.num_bytes) == (2, [], plan.num_bytes)
    assert 200_000 <= done.num_bytes < 250_000, "the page is linked, so it does not become free"
    assert {each.name: read_manifests(each) for each in (run, good, other)} == before
    assert not any(each.earlier.exists() for each in (run, good)) and run.report.is_file()
