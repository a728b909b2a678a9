"""What `plan` says of each stage."""

from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, describe_outputs, write_manifest
from tasks.cache.stages import epoch_chain, stage_digests
from tasks.planning.known_rows import known_rows
from tasks.planning.stage_status import stage_statuses
from tests.tasks.continued import End, Geometry, attempt

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(ROOT)
    return load_config(Path("tests/e2e/configs/small.yaml"))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


def finish(run: RunDirectory, config: RunConfig, stage: str, path: Path, **result: object) -> None:
    """Leave a finished stage behind."""
    digests = stage_digests(config)
    digest = (digests | dict(epoch_chain(config, digests, epochs=2)))[stage]
    path.mkdir(parents=True)
    (path / "file").write_text(stage)
    outputs = describe_outputs(run.root, [path])
    write_manifest(
        run, StageManifest(stage=stage, digest=digest, outputs=outputs, result=result, seconds=1.0, finished_at="")
    )


def statuses(config: RunConfig, run: RunDirectory, *, reuse: bool = True) -> dict[str, str]:
    digests = stage_digests(config)
    rows = known_rows(config, run, digests)
    plan = rows.plan(config) if rows else None
    return {status.stage: status.status for status in stage_statuses(config, run, digests, reuse=reuse, plan=plan)}


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
    digests = [digest for _, digest in epoch_chain(config, stage_digests(config), epochs=2)]
    training = Geometry(
        steps_per_epoch=3, epochs=2, save_freq=2, save_limit=1, digests=dict(enumerate(digests, start=1))
    )
    attempt(run, training, End(step=5, kind="stopped"))
    (run.checkpoints / "step-000006").mkdir()
    found = statuses(config, run)
    assert found["train-epoch-001"] == "finished"
    assert found["train-epoch-002"] == "continues after step 5"


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
