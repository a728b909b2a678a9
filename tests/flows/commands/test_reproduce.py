"""`sightline reproduce`: every baseline is planned offline, from its config alone."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.reproduce import print_conclusion
from flows.reproducing import BaselineSet, all_baselines, baseline_path
from flows.request import resolve_run
from rl_core.config.loading import load_config
from rl_core.evaluation.protocols.protocol import departures
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.reproduction import published_band
from tasks.cache.named_files import located_config

ROOT = Path(__file__).parents[3]
BASELINES = sorted((ROOT / "configs" / "baselines").glob("*.yaml"))
STEPS = {"geo3k": (4, 60), "clevr": (136, 2040), "geoqa": (15, 225), "math12k": (23, 345)}
"""Of the reference: steps an epoch, steps in 15 epochs."""


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "200")


def reproduce(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--dry-run"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_every_baseline_is_planned_offline(path: Path) -> None:
    code, text = reproduce(path.stem)
    assert code == 0, text
    (data,) = [name for name in STEPS if name in path.stem]
    an_epoch, in_all = STEPS[data]
    assert re.search(rf"rows / 512 = {an_epoch} steps", text)
    assert f"{in_all} steps in 15 epoch(s)" in text
    precision = "bfloat16 arithmetic, float32 master weights"
    for part in (
        "expected hours: ",
        "whose size is not known",
        "M parameters",
        precision,
        "one sample an item",
        "digest",
    ):
        assert part in text, part
    for part in ("not comparable", "problem", "warning"):
        assert part not in text, text


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_every_baseline_has_the_references_settings_and_its_protocols_evaluation(path: Path) -> None:
    """facts/easyr1.md, section 4: the values that all scripts share, and those of each algorithm."""
    config = load_config(path)
    assert path.stem.replace("_", "-") == config.experiment
    published = config.published
    assert published is not None
    located = located_config(config)
    assert departures(located, protocol_named(published.protocol)) == []
    assert published.items == protocol_named(published.protocol).num_items
    shared = (
        config.data.rollout_batch_size, config.rollout.n, config.actor.global_batch_size, config.rollout.temperature,
        config.actor.optim.betas, config.actor.optim.weight_decay, config.actor.optim.lr_scheduler_type,
        config.data.max_prompt_length, config.rollout.max_response_length, config.trainer.total_epochs,
        config.model.dtype, config.actor.optim.strategy,
    )  # fmt: skip
    assert shared == (512, 5, 128, 1.0, (0.9, 0.999), 0.01, "constant", 2048, 2048, 15, "bfloat16", "adamw")
    assert config.actor.optim.lr == (1e-5 if config.model.lora else 1e-6)
    algorithm = config.algorithm
    loss = algorithm.loss.model_dump(exclude={"type"})
    kl = algorithm.kl and (algorithm.kl.coef, algorithm.kl.penalty, algorithm.kl.use_kl_loss)
    kind = path.stem.removesuffix("_lora").partition("grpo")[1] or path.stem.partition("geo3k_")[2]
    assert (algorithm.advantage.type, algorithm.loss.type, algorithm.loss_avg_mode, tuple(loss.values()), kl) == {
        "grpo": ("grpo", "ppo", "token", (0.2, 0.3, 3.0), (1e-2, "low_var_kl", True)),
        "dapo": ("grpo", "ppo", "token", (0.2, 0.28, 3.0), None),
        "gspo": ("grpo", "gspo_token", "seq", (3e-4, 4e-4, 3.0), None),
        "cispo": ("grpo", "cispo", "token", (0.0, 4.0), (1e-2, "low_var_kl", True)),
        "sapo": ("grpo", "sapo", "token", (1.0, 1.05), None),
        "reinforce_plus_plus": (
            "reinforce_plus_plus", "ppo", "token", (0.2, 0.3, 3.0), (1e-3, "kl", False),
        ),
    }[kind]  # fmt: skip
    assert (algorithm.online_filtering is not None) == (kind == "dapo")


def test_the_page_of_baselines_has_every_one_with_its_band() -> None:
    page = (ROOT / "docs" / "baselines.md").read_text()
    for path in BASELINES:
        published = load_config(path).published
        assert published is not None
        band = published_band(published)
        low = "" if band is None else f"{band[0]:.3f}"
        assert re.search(rf"\| `{path.stem}` \| .* \| {low}.*\| {published.total_steps} \|", page), path.stem


def test_a_changed_baseline_says_what_stands_between() -> None:
    code, text = reproduce(
        "qwen2_5_vl_3b_geo3k_grpo", "--set", "actor.optim.lr=1e-5", "--set", "trainer.total_epochs=1"
    )
    assert code == 1
    assert "not comparable actor.optim.lr is 1e-05, the baseline's 1e-06" in text
    assert "the run would take 4, the reference takes 60" in text


def test_the_plan_of_a_baseline_is_printed_once_for_all_seeds() -> None:
    _, alone = reproduce("qwen2_5_vl_3b_geo3k_grpo")
    code, text = reproduce("qwen2_5_vl_3b_geo3k_grpo", "--seeds", "1-2,5")
    assert code == 0
    assert text.strip() == f"{alone.strip()}\nseeds 1-2,5: 3 runs as above, judged together"
    code, text = reproduce("qwen2_5_vl_3b_geo3k_grpo", "--seeds", "1-2", "trainer.total_epochs=1")
    assert code == 1 and text.count("the run would take 4, the reference takes 60") == 1


def test_every_bad_name_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"no baseline geo3k(.|\n)*no baseline clevr"):
        reproduce("geo3k", "qwen2_5_vl_3b_geo3k_grpo", "clevr")


def test_a_set_is_found_again_by_its_name(tmp_path: Path) -> None:
    baseline_set = BaselineSet(baselines=["all"], overrides=["seed=3"], tag="20260101T040000", runs_dir=str(tmp_path))
    assert baseline_set.names == all_baselines()
    assert baseline_set.planned()[0].resolved.run.name.endswith("-20260101T040000")
    baseline_set.save()
    given = {"resume": baseline_set.name, "runs_dir": str(tmp_path)}
    assert BaselineSet.of_parameters(given, datetime.now(UTC)) == replace(baseline_set, baselines=all_baselines())
    assert f"--resume {baseline_set.name} --runs-dir {tmp_path}" in baseline_set.command
    with pytest.raises(ValueError, match=rf"no set of baselines weekly; .* has {baseline_set.name}"):
        BaselineSet.of_parameters({**given, "resume": "weekly"}, datetime.now(UTC))


NAMES = ["qwen2_5_vl_3b_geo3k_grpo", "qwen2_5_vl_7b_geo3k_grpo"]


def test_a_set_with_seeds_has_the_run_that_each_seed_leads_to(tmp_path: Path) -> None:
    asked = {"baselines": NAMES, "overrides": ["seed=9"], "seeds": "2,4", "resume": "", "fresh": False}
    baseline_set = BaselineSet.of_parameters({**asked, "runs_dir": str(tmp_path)}, datetime.now(UTC))
    planned = baseline_set.planned()
    assert [plan.name for plan in planned] == [f"{name} seed {seed}" for name in NAMES for seed in (2, 4)]
    alone = [resolve_run(baseline_path(name), [f"seed={seed}"], runs_dir=tmp_path) for name in NAMES for seed in (2, 4)]
    assert [plan.resolved for plan in planned] == alone
    assert baseline_set.name == replace(baseline_set, seeds=()).name + "-seeds-2,4"
    baseline_set.save()
    given = {"resume": baseline_set.name, "runs_dir": str(tmp_path)}
    assert BaselineSet.of_parameters(given, datetime.now(UTC)) == baseline_set


def test_a_set_of_all_stays_what_it_was_when_a_baseline_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    baseline_set = BaselineSet(baselines=["all"])
    name, before = baseline_set.name, baseline_set.names
    baseline_set.save()
    shutil.copy(baseline_path(before[0]), Path("configs/baselines") / "added.yaml")
    resumed = BaselineSet.of_parameters({"resume": name, "runs_dir": "runs"}, datetime.now(UTC))
    assert "added" in all_baselines() and (resumed.name, resumed.names) == (name, before)


@pytest.mark.parametrize(("status", "code"), [("good", 0), ("regressed", 1)])
def test_the_exit_status_is_0_only_when_all_are_good(
    status: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"seed": 1, "run": "a-1", "accuracy": 0.3, "failure": None}
    fine = {"name": "a", "runs": [run], "status": "good", "reasons": [], "reproduction": None}
    other = {
        **fine,
        "name": "b",
        "status": status,
        "reasons": ["-6.0 points against a-0"],
        "runs": [run, {"seed": 2, "run": "a-2", "accuracy": None, "failure": "out of memory"}],
        "reproduction": {"accuracy_before": 0.24, "accuracy": 0.31, "ci95_over_seeds": [0.2, 0.4]},
    }
    baseline_set = BaselineSet(baselines=["a", "b"], runs_dir=str(tmp_path))
    baseline_set.save()
    baseline_set.page.with_suffix(".json").write_text(json.dumps({"baselines": [fine, other]}))
    assert print_conclusion(baseline_set, Console()) == code
    text = capsys.readouterr().out
    assert "0.240 -> 0.310" in text and "b: -6.0 points against a-0" in text and "summary.html" in text
    assert "0.200 to 0.400" in text and "seed 1: 0.300, a-1" in text and "seed 2: no accuracy, a-2" in text
