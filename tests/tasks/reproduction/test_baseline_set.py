"""Sets of baselines week after week: what is good, what is a regression, and what is kept and shown of it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rl_core.config.loading import load_config
from tasks.cache.reuse import is_finished
from tasks.cache.stages import stage_digests
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.baseline_set import Member, judge_set
from tasks.reproduction.page import render_reproduction, reproduction_page
from tasks.reproduction.record import EXPERIMENT, conclude, markdown, show_conclusion
from tests.tasks.baseline_runs import UNPUBLISHED, week
from tests.tasks.finished_run import finish_stage
from tests.tasks.results.test_report_page import parsed

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def judged(member: Member) -> BaselineResult:
    (result,) = judge_set([member])
    return result


def test_the_first_good_run_is_what_the_next_one_is_compared_with(tmp_path: Path) -> None:
    first = judged(week(tmp_path, 1, 290))
    assert (first.status, first.last_good) == ("good", None)
    assert first.reasons == [
        "0.483 reproduces the published 0.48 (0.435 to 0.525; one seed)",
        "there is no earlier good run of this recipe",
    ]
    second = judged(week(tmp_path, 2, 285))
    assert (second.status, second.last_good) == ("good", first.run.name)
    assert second.drift.comparison.difference == pytest.approx(-5 / 601)


def test_a_drop_inside_the_published_band_is_a_regression_and_no_reference(tmp_path: Path) -> None:
    judged(week(tmp_path, 1, 312))
    dropped = judged(week(tmp_path, 2, 270))
    assert dropped.reproduction.outcome == "reproduced" and dropped.status == "regressed"
    assert re.match(r"significantly worse than the last good run .*-week-1: -7.0 points", dropped.reasons[0])
    assert json.loads(dropped.run.reproduction.read_text())["status"] == "regressed"
    assert judged(week(tmp_path, 3, 268)).last_good.endswith("week-1")


def test_a_decline_too_slow_to_be_seen_from_week_to_week_is_seen_from_the_first_good_run(tmp_path: Path) -> None:
    weeks = [judged(week(tmp_path, number, right)) for number, right in ((1, 310), (2, 307), (3, 304))]
    assert [one.status for one in weeks] == ["good"] * 3
    declined = judged(week(tmp_path, 4, 302))
    assert declined.last_good.endswith("week-3") and not declined.drift.is_drop
    assert declined.status == "regressed"
    assert re.match(r"significantly worse than the first good run .*-week-1: -1.3 points", declined.reasons[0])
    assert json.loads(declined.run.reproduction.read_text())["drift_from_first"]["earlier"].endswith("week-1")


def test_below_the_published_band_is_a_regression_from_the_first_run_on(tmp_path: Path) -> None:
    below = judged(week(tmp_path, 1, 250))
    assert below.status == "regressed"
    assert below.reasons[0] == "0.416 is below the published 0.48 (0.435 to 0.525; one seed)"


def test_without_a_published_number_the_last_good_run_decides(tmp_path: Path) -> None:
    assert judged(week(tmp_path, 1, 290, name=UNPUBLISHED)).status == "good"
    assert judged(week(tmp_path, 2, 230, name=UNPUBLISHED)).status == "regressed"


def test_a_changed_recipe_is_not_comparable_and_an_alarm(tmp_path: Path) -> None:
    result = judged(week(tmp_path, 1, 290, "rollout.n=8"))
    assert result.status == "not comparable" and result.is_alarm
    assert result.reasons[0] == "not comparable with the publication: rollout.n is 8, the baseline's 5"


def test_a_run_that_failed_and_one_that_cannot_be_read_keep_no_other_from_its_result(tmp_path: Path) -> None:
    failed = replace(week(tmp_path, 1, 290), failure="the disk is full")
    unread = week(tmp_path, 2, 290, name=UNPUBLISHED)
    (unread.run.evaluation("base") / "result.json").unlink()
    results = judge_set([failed, unread, week(tmp_path, 3, 290)])
    assert [result.status for result in results] == ["failed", "failed", "good"]
    assert results[0].reasons == ["the disk is full"] and "cannot be read" in results[1].reasons[0]
    assert not failed.run.reproduction.exists()


def test_many_baselines_raise_no_more_false_alarms_than_one(tmp_path: Path) -> None:
    """Six answers lost and none gained are p = 0.03 for one baseline alone."""
    judge_set([week(tmp_path, 1, 300), week(tmp_path, 1, 300, name=UNPUBLISHED)])
    later = [week(tmp_path, 2, 294), week(tmp_path, 2, 295, name=UNPUBLISHED)]
    together, alone = judge_set(later)[0], judged(later[0])
    assert together.drift.comparison.p_value == pytest.approx(2 * alone.drift.comparison.p_value)
    assert alone.status == "regressed" and together.status == "good"


def test_only_what_stands_is_finished(tmp_path: Path) -> None:
    config = load_config(Path("tests/e2e/configs/small.yaml"))
    run = week(tmp_path, 1, 290).run
    digests = stage_digests(config)
    for stage in ("evaluate-base", "evaluate-trained", "report"):
        assert not is_finished(config, run)
        finish_stage(run, stage, {}, run.config, digest=digests[stage])
    assert is_finished(config, run)
    run.config.write_text("altered")
    assert not is_finished(config, run)
    gone = config.model_copy(update={"data": config.data.model_copy(update={"prompt_template": "nowhere.jinja"})})
    assert not is_finished(gone, run)


def a_set(folder: Path) -> list[Member]:
    """A regressed, an unpublished and a failed baseline."""
    judge_set([week(folder, 1, 312)])
    return [
        week(folder, 2, 270),
        week(folder, 2, 290, name=UNPUBLISHED),
        replace(week(folder, 3, 290), name="another", failure="<b>out of memory</b>"),
    ]


def test_the_page_is_one_file_and_says_all(tmp_path: Path) -> None:
    page = reproduction_page("weekly", judge_set(a_set(tmp_path)), command="sightline reproduce --resume weekly")
    html = render_reproduction(page)
    references = parsed(html)
    assert all(address.startswith("data:") for address in references.loaded)
    assert "<script" not in html and "@import" not in html and "url(http" not in html
    assert references.open == [] and len(references.ids) == len(set(references.ids))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html.partition("<body>")[2]))
    for part in (
        "2 of 3 baselines need a look: qwen2_5_vl_7b_geo3k_grpo regressed, another failed",
        "significantly worse than the last good run",
        "44.9 %", "43.5 % to 52.5 %", "not published", "-7.0p", "none yet", "no number", "0.1.2",
        "&lt;b&gt;out of memory", "this run", "last good run", "sightline reproduce --resume weekly",
    ):  # fmt: skip
        assert part in text, part
    assert html.count("<svg") == 2


def test_a_set_of_good_baselines_says_so(tmp_path: Path) -> None:
    results = judge_set([week(tmp_path, 1, 290)])
    assert reproduction_page("s", results, command="").headline == "the baseline is good"
    assert reproduction_page("s", results * 2, command="").headline == "all 2 baselines are good"


def test_page_and_figures_lie_in_the_sets_folder(tmp_path: Path) -> None:
    conclusion = conclude("weekly", a_set(tmp_path / "runs"), tmp_path / "weekly" / "summary.html", command="")
    assert conclusion.page.read_text().startswith("<!doctype html>")
    figures = json.loads((tmp_path / "weekly" / "summary.json").read_text())
    assert [one["status"] for one in figures["baselines"]] == ["regressed", "good", "failed"]
    assert figures["baselines"][0]["drift"]["difference"] == pytest.approx(-42 / 601)
    text = markdown(conclusion)
    assert "| qwen2_5_vl_7b_geo3k_grpo | regressed | 44.9 % | 43.5 % to 52.5 % | -7.0 |" in text
    assert "- another: <b>out of memory</b>" in text and str(conclusion.page) in text


def test_mlflow_has_each_set_once_with_its_page(tmp_path: Path, new_database: Callable[[], str]) -> None:
    uri = new_database()
    conclusion = conclude("weekly", a_set(tmp_path / "runs"), tmp_path / "weekly" / "summary.html", command="")
    for _ in range(2):
        show_conclusion(conclusion, mlflow_uri=uri)
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert (run.info.run_name, run.info.status) == ("weekly", "FAILED")
    assert run.data.metrics["alarms"] == 2
    assert run.data.metrics["accuracy/qwen2_5_vl_7b_geo3k_grpo"] == pytest.approx(270 / 601)
    assert run.data.metrics["difference/qwen2_5_vl_7b_geo3k_grpo"] == pytest.approx(-42 / 601)
    assert len(client.get_metric_history(run.info.run_id, "alarms")) == 1
    assert run.data.tags["status.another"] == "failed"
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"summary.html", "summary.json"}
