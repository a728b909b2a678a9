"""A config file or a run's folder leads to one run."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from flows.request import Override, ResolvedRun, RunRequest, resolve_run, start_tag
from rl_core.config.loading import ConfigError, dump_config, load_config
from tasks.cache.stages import run_name

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


@pytest.mark.parametrize("change", [{"overrides": ["seed=2"]}, {"tag": "20260101T000000"}])
def test_a_runs_config_is_frozen(tmp_path: Path, change: dict) -> None:
    with pytest.raises(ConfigError, match="whose config cannot change"):
        resolve_run(made(tmp_path), **change)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no run \(it holds no config.yaml\)"):
        resolve_run(tmp_path)


def pushing(config: Path | str, runs_dir: Path = Path("runs")) -> ResolvedRun:
    asked = RunRequest(config=str(config), runs_dir=str(runs_dir), push="owner/name")
    return asked.resolved(datetime.now(UTC))


def test_where_to_upload_does_not_make_another_run(tmp_path: Path) -> None:
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
def test_what_changes_no_key_is_refused_by_both(override: str) -> None:
    with pytest.raises(ConfigError, match=r"must read key\.path=value"):
        load_config(QUICKSTART, [override])
    with pytest.raises(ValidationError):
        TypeAdapter(Override).validate_python(override)
