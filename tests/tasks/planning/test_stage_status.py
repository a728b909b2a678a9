"""What `plan` says about each stage."""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.cache.named_files import NamedFiles
from tasks.cache.software import Software, software_of_stages
from tasks.cache.stages import epoch_chain, stage_digests
from tasks.planning.problems import known_rows
from tasks.planning.stage_status import stage_statuses
from tests.tasks.continued import End, Geometry, attempt
from tests.tasks.finished_run import finish_stage
from tests.tasks.made_stages import made_now
from tests.tasks.upgrades import install

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(ROOT)
    return load_config(Path("tests/e2e/configs/small.yaml"))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


def finish(
    run: RunDirectory,
    config: RunConfig,
    stage: str,
    path: Path,
    *,
    software: Mapping[str, Software] | None = None,
    **result: object,
) -> None:
    """Leave a finished stage behind that this software has made, with all before it."""
    made = made_now(config, stage, software=software)
    path.mkdir(parents=True)
    (path / "file").write_text(stage)
    finish_stage(run, stage, result, path, digest=made.digest, software=made.software)


def statuses(config: RunConfig, run: RunDirectory, *, reuse: bool = True) -> dict[str, str]:
    digests = stage_digests(config)
    rows = known_rows(config, run, digests)
    plan = rows.plan(config) if rows else None
    found = stage_statuses(config, run, digests, reuse=reuse, plan=plan)
    return {status.stage: status.status for status in found}


def here(config: RunConfig) -> dict[str, dict[str, str]]:
    """By which software each kind of stage is made here."""
    return {
        kind: dict(software)
        for kind, software in software_of_stages(config, NamedFiles(paths_from=config.paths_from)).items()
    }


def training_of(config: RunConfig, made_by: Mapping[str, Software]) -> Geometry:
    """The config's training by this software: two epochs of three steps."""
    digests = [digest for _, digest in epoch_chain(config, stage_digests(config), epochs=2)]
    return Geometry(
        steps_per_epoch=3,
        epochs=2,
        save_freq=2,
        save_limit=1,
        digests=dict(enumerate(digests, start=1)),
        software=made_now(config, "training", software=made_by).software,
    )


def test_nothing_is_done_in_a_new_run(config: RunConfig, run: RunDirectory) -> None:
    found = statuses(config, run)
    assert set(found.values()) == {"to do"}
    assert {"train-epoch-001", "train-epoch-002"} <= found.keys()


def test_stages_are_finished_here_or_elsewhere(config: RunConfig, run: RunDirectory) -> None:
    other = RunDirectory(run.root.with_name("other"))
    finish(run, config, "prepare", run.data, splits={"train": {"rows": 12}})
    finish(other, config, "cold-start", other.base_model)
    finish(other, config, "report", other.root / "page")
    found = statuses(config, run)
    assert found["prepare"] == "finished"
    assert found["cold-start"] == "finished in other"
    assert found["report"] == "to do", "a report speaks of its own run"
    assert statuses(config, run, reuse=False)["cold-start"] == "to do"


def test_training_goes_on_after_its_newest_checkpoint(config: RunConfig, run: RunDirectory) -> None:
    attempt(run, training_of(config, here(config)), End(step=5, kind="stopped"))
    (run.checkpoints / "step-000006").mkdir()
    found = statuses(config, run)
    assert found["train-epoch-001"] == "finished"
    assert found["train-epoch-002"] == "continues after step 5"


def test_what_other_software_made_is_taken_over_from_no_run_and_the_reason_is_shown(
    config: RunConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = RunDirectory(run.root.with_name("other"))
    finish(other, config, "prepare", other.data, splits={"train": {"rows": 12}})
    finish(other, config, "cold-start", other.base_model)
    assert statuses(config, run)["cold-start"] == "finished in other"
    before = version("peft")
    install(monkeypatch, tmp_path, "peft", "99.0")
    refused = f"to do; not taken over from other: made by other software: peft {before} -> 99.0"
    found = statuses(config, run)
    assert found["prepare"] == refused
    assert found["cold-start"] == f"{refused}, what made prepare"


def test_the_own_stages_and_epochs_go_on_with_other_software(config: RunConfig, run: RunDirectory) -> None:
    before = {kind: software | {"torch": "1.0"} for kind, software in here(config).items()}
    finish(run, config, "prepare", run.data, software=before, splits={"train": {"rows": 12}})
    finish(run, config, "cold-start", run.base_model, software=before)
    attempt(run, training_of(config, before), End(step=5, kind="stopped"))
    found = statuses(config, run)
    change = f"by other software: torch 1.0 -> {here(config)['train']['torch']}"
    assert found["prepare"] == found["train-epoch-001"] == f"finished, {change}"
    assert found["train-epoch-002"] == f"continues after step 5, {change}"


def test_epochs_of_other_software_are_taken_over_from_no_run(config: RunConfig, run: RunDirectory) -> None:
    other, now = RunDirectory(run.root.with_name("other")), here(config)
    for place in (run, other):
        finish(place, config, "prepare", place.data, splits={"train": {"rows": 12}})
        finish(place, config, "cold-start", place.base_model)
    attempt(other, training_of(config, now))
    assert statuses(config, run)["train-epoch-002"] == "finished in other"
    shutil.rmtree(other.root / "checkpoints")
    other.stage_manifest("train-epoch-002").unlink()
    attempt(other, training_of(config, now | {"train": now["train"] | {"torch": "1.0"}}))
    assert statuses(config, run)["train-epoch-001"] == (
        f"to do; not taken over from other: made by other software: torch 1.0 -> {now['train']['torch']}"
    )


def test_a_stage_is_made_again_if_an_earlier_one_that_it_needs_was(config: RunConfig, run: RunDirectory) -> None:
    before = {kind: software | {"torch": "1.0"} for kind, software in here(config).items()}
    finish(run, config, "prepare", run.data, splits={"train": {"rows": 12}})
    finish(run, config, "cold-start", run.base_model, software=before)
    assert statuses(config, run)["cold-start"] == ("to do; other software has made prepare again")


def test_many_epochs_are_one_line(config: RunConfig, run: RunDirectory) -> None:
    few = statuses(config, run).keys()
    many = load_config(
        Path("tests/e2e/configs/small.yaml"), ["trainer.total_epochs=99999999999", "trainer.max_steps=null"]
    )
    found = statuses(many, run)
    assert found["train-epoch-001 to 99999999999"] == "to do"
    assert len(found) <= len(few)


def test_without_known_rows_training_is_one_line(config: RunConfig, run: RunDirectory, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"problem": "?", "images": [], "answer": "1"}\n')
    config = load_config(
        Path("tests/e2e/configs/small.yaml"), [f"data.train={{type: local, path: {rows}}}", "data.rollout_batch_size=2"]
    )
    assert statuses(config, run)["training"] == "to do; the rows are counted first"
    finish(run, config, "prepare", run.data, splits={"train": {"rows": 8}})
    assert "train-epoch-002" in statuses(config, run)
