"""A config file or a run's folder leads to one run."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from flows.commands.run import fork_of
from flows.request import Override, ResolvedRun, RunRequest, resolve_run, run_of_config, start_tag
from rl_core.checkpoints.manifest import CheckpointInfo, write_manifest
from rl_core.config.loading import ConfigError, dump_config, load_config
from rl_core.config.run import ForkedFrom
from rl_core.run_directory import RunDirectory
from tasks.cache.kept_files import keep_files
from tasks.cache.stages import FOLLOWED_LENGTH, run_name
from tasks.resuming.differing import SHORTER

CONFIG = Path(__file__).parents[2] / "configs" / "quickstart.yaml"


def made(folder: Path, *overrides: str, tag: str | None = None) -> Path:
    """The folder of a run that was started."""
    config = load_config(CONFIG, overrides)
    root = folder / run_name(config, tag=tag)
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(dump_config(config))
    return root


def test_a_config_leads_to_the_run_of_its_digest(tmp_path: Path) -> None:
    resolved = resolve_run(CONFIG, ["trainer.total_epochs=1"], runs_dir=tmp_path)
    assert resolved.run.root == tmp_path / run_name(load_config(CONFIG, ["trainer.total_epochs=1"]))
    assert resolved.reuse


@pytest.mark.parametrize("by_name", [False, True])
def test_a_runs_folder_or_name_leads_to_that_run_with_its_own_config(tmp_path: Path, by_name: bool) -> None:
    root = made(tmp_path, "trainer.total_epochs=1")
    resolved = resolve_run(root.name, runs_dir=tmp_path) if by_name else resolve_run(root)
    assert resolved.run.root == root
    assert resolved.config.trainer.total_epochs == 1
    assert resolved.reuse


def test_a_tagged_run_takes_nothing_over_and_neither_does_its_continuation(tmp_path: Path) -> None:
    assert not resolve_run(CONFIG, runs_dir=tmp_path, tag="20260101T000000").reuse
    assert not resolve_run(made(tmp_path, tag="20260101T000000")).reuse


@pytest.mark.parametrize("change", ["seed=2", "actor.optim.lr=1e-3", "evaluation.n=2", "data.train.size=64"])
def test_a_key_of_the_recipe_is_another_run(tmp_path: Path, change: str) -> None:
    root = made(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"{change.partition('=')[0]}: another value .* fork {root.name} --step N {change}"
    ):
        resolve_run(root, [change])
    assert resolve_run(CONFIG, [change], runs_dir=tmp_path).run.root != root


@pytest.mark.parametrize(
    "change",
    [
        *("trainer.max_steps=80", "trainer.total_epochs=9", "trainer.stop_at={metric: val/accuracy, value: 0.9}"),
        *("reward.max_failed_share=0.5", "reward.timeout_seconds=60", "reward.workers=1", "data.max_bad_share=0.3"),
        *("trainer.save_freq=1", "trainer.val_freq=2", "rollout.max_num_seqs=8", "tracking.mlflow_uri=null"),
        *("actor.micro_batch_size_per_device_for_update=1", "model.gradient_checkpointing=true"),
        *("cluster={devices: 2}", "storage={address: /mnt/share}", "planning.mean_response_length=3"),
    ],
)
def test_a_key_of_length_or_operation_is_the_same_run(tmp_path: Path, change: str) -> None:
    root = made(tmp_path)
    for resolved in (resolve_run(root, [change]), resolve_run(CONFIG, [change], runs_dir=tmp_path)):
        assert resolved.run.root == root
        assert resolved.config == load_config(CONFIG, [change])


def test_a_run_that_is_named_cannot_be_fresh(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a config file"):
        resolve_run(made(tmp_path), tag="20260101T000000")


OWN = ["reward.function=own.py:score", "trainer.max_steps=4", "data.prompt_template=null", "actor.optim={lr: 1e-3}"]
COSINE = "actor.optim={lr: 1e-3, lr_scheduler_type: cosine}"


def begun(folder: Path, *overrides: str, steps: int) -> RunDirectory:
    """A run that was started, with a checkpoint after so many steps."""
    (folder / "own.py").write_text("def score(sample): return 1.0")
    config = load_config(CONFIG, [f"paths_from=[{folder}]", *OWN, *overrides])
    resolved = run_of_config(config, runs_dir=folder / "runs", tag=None)
    keep_files(resolved.run, config, resolved.files())
    resolved.run.config.write_text(dump_config(config))
    saved = resolved.run.checkpoints / f"step-{steps:06d}"
    saved.mkdir(parents=True)
    info = CheckpointInfo(step=steps, validation_score=None, loader={}, counters={}, model_only=False, interim=False)
    write_manifest(saved, info, written={})
    return resolved.run


def asked(folder: Path, *overrides: str, **how: bool) -> ResolvedRun:
    return resolve_run(CONFIG, [f"paths_from=[{folder}]", *OWN, *overrides], runs_dir=folder / "runs", **how)


def test_an_edited_file_leads_to_a_new_run_and_the_original_file_back_to_the_first(tmp_path: Path) -> None:
    run = begun(tmp_path, steps=2)
    original = (tmp_path / "own.py").read_text()
    (tmp_path / "own.py").write_text("def score(sample): return 2.0")
    new = asked(tmp_path)
    assert (new.run.name, new.predecessor, list(new.differs)) == (f"{run.name}-2", run, ["own.py"])
    assert new.why_new == f"own.py changed, so this is another run beside {run.name}"
    resumed = resolve_run(run.root)
    assert (resumed.run, resumed.is_continued) == (new.run, False)
    keep_files(new.run, new.config, new.files())
    new.run.config.write_text(dump_config(new.config))
    assert (asked(tmp_path).run, asked(tmp_path).predecessor) == (new.run, None)
    (tmp_path / "own.py").write_text(original)
    assert (asked(tmp_path).run, asked(tmp_path).predecessor) == (run, None)
    (tmp_path / "own.py").write_text("def score(sample): return 3.0")
    assert asked(tmp_path).run.name == f"{run.name}-3"


def test_with_keep_training_the_newest_run_goes_on_with_an_edited_file(tmp_path: Path) -> None:
    run = begun(tmp_path, steps=2)
    (tmp_path / "own.py").write_text("def score(sample): return 2.0")
    kept = asked(tmp_path, keep_training=True)
    assert (kept.run, kept.keeps_training, list(kept.differs)) == (run, True, ["own.py"])
    assert asked(tmp_path, is_frozen=True).run == run


def test_a_file_beside_the_function_that_it_imports_counts_too(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("RIGHT = 1.0")
    run = begun(tmp_path, steps=2)
    (tmp_path / "own.py").write_text("import helper\ndef score(sample): return helper.RIGHT")
    new = asked(tmp_path)
    keep_files(new.run, new.config, new.files())
    new.run.config.write_text(dump_config(new.config))
    (tmp_path / "helper.py").write_text("RIGHT = 0.5")
    assert asked(tmp_path).run.name == f"{run.name}-3"


def test_a_shorter_length_than_what_is_trained_is_another_run(tmp_path: Path) -> None:
    run = begun(tmp_path, steps=4)
    assert asked(tmp_path, "trainer.max_steps=9").run == run
    shorter = asked(tmp_path, "trainer.max_steps=3")
    assert (shorter.predecessor, list(shorter.differs)) == (run, [SHORTER])
    with pytest.raises(ConfigError, match=f"sightline fork {run.name} --step N"):
        asked(tmp_path, "trainer.max_steps=3", keep_training=True)


def test_a_rate_that_follows_the_length_is_stretched_only_if_it_is_asked_for(tmp_path: Path) -> None:
    run = begun(tmp_path, COSINE, steps=4)
    longer = asked(tmp_path, COSINE, "trainer.max_steps=9")
    assert (longer.predecessor, list(longer.differs)) == (run, [FOLLOWED_LENGTH])
    assert asked(tmp_path, COSINE, "trainer.max_steps=9", keep_training=True).run == run
    assert asked(tmp_path, COSINE).run == run


@pytest.mark.parametrize(
    "changes",
    [
        ["model.lora={rank: 4}"],
        ["model.source.num_layers=3"],
        ["critic={cliprange_value: 0.2}", "algorithm.advantage={type: gae}"],
    ],
)
def test_a_fork_that_does_not_fit_its_checkpoint_is_refused_before_it_has_a_folder(
    tmp_path: Path, changes: list[str]
) -> None:
    run = begun(tmp_path, steps=2)
    runs_dir = str(run.root.parent)
    with pytest.raises(ConfigError, match="a fork goes on with"):
        fork_of("", run.name, changes, runs_dir)
    by_folder, by_name = (fork_of(str(run.root), "", ["seed=2"], runs_dir), fork_of("", run.name, ["seed=2"], runs_dir))
    assert by_folder == by_name
    config, overrides = by_name
    assert load_config(Path(config), overrides).forked_from == ForkedFrom(run=run.name, step=2)
    assert [*run.root.parent.iterdir()] == [run.root]


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no run \(it holds no config.yaml\)"):
        resolve_run(tmp_path)


def pushing(config: Path | str, runs_dir: Path = Path("runs")) -> ResolvedRun:
    asked = RunRequest(config=str(config), runs_dir=str(runs_dir), push="owner/name")
    return asked.resolved(datetime.now(UTC))


def test_the_repository_of_the_upload_does_not_make_another_run(tmp_path: Path) -> None:
    plain = resolve_run(CONFIG, runs_dir=tmp_path)
    pushed = pushing(CONFIG, runs_dir=tmp_path)
    assert pushed.run == plain.run
    assert pushed.config.merge.push == "owner/name"
    assert pushing(made(tmp_path)).config.merge.push == "owner/name"


def test_the_tag_of_a_start_is_utc() -> None:
    assert start_tag(datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC)) == "20260101T010203"
    assert start_tag(datetime(2026, 1, 1, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))) == "20251231T230203"


MIXTURE = (
    "data.train={type: mixture, sources: {my-charts: {type: counting, size: 8, scene_seed: 1}, "
    "hiyouga/geometry3k: {type: counting, size: 8, scene_seed: 3}}}"
)
QUICKSTART = Path(__file__).parents[2] / "configs/quickstart.yaml"


@pytest.mark.parametrize(
    "override",
    [
        "seed=3",
        " seed =3",
        "data.prompt_template=a=b.jinja",
        "reward.by_source.my-charts.function=count",
        "data.source_weights.my-charts=2",
        "data.source_weights.hiyouga/geometry3k=2",
        "data.train.sources.größe={type: counting, size: 8, scene_seed: 4}",
        "data.train.sources.two words={type: counting, size: 8, scene_seed: 4}",
        "data.system_prompt=\n",
    ],
)
def test_an_override_of_the_command_line_is_one_of_the_form(override: str) -> None:
    load_config(QUICKSTART, [MIXTURE, override])
    assert TypeAdapter(Override).validate_python(override) == override


@pytest.mark.parametrize("override", ["", "seed", "=3", "  =3"])
def test_an_override_that_changes_no_key_is_refused_by_the_loader_and_by_the_form(override: str) -> None:
    with pytest.raises(ConfigError, match=r"must read key\.path=value"):
        load_config(QUICKSTART, [override])
    with pytest.raises(ValidationError):
        TypeAdapter(Override).validate_python(override)
