"""Sets of baselines week after week: what is good, what is a regression, and what is kept and shown of it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rl_core.config.loading import load_config
from rl_core.evaluation.result import write_evaluation
from tasks.cache.reuse import is_finished
from tasks.cache.stages import stage_digests
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.baseline_set import Member, judge_set
from tasks.reproduction.record import (
    EXPERIMENT,
    conclude,
    markdown,
    render_reproduction,
    reproduction_page,
    show_conclusion,
)
from tests.rl_core.evaluation.builders import make_items
from tests.tasks.baseline_runs import UNPUBLISHED, run_of, week, week_of_seeds
from tests.tasks.finished_run import finish_stage
from tests.tasks.results.test_report_page import assert_stands_alone

pytestmark = pytest.mark.usefixtures("at_the_root")


def broken(member: Member, why: str) -> Member:
    """The member with a run that did not finish."""
    return replace(member, failures=dict.fromkeys(member.runs, why))


def judged(member: Member) -> BaselineResult:
    (result,) = judge_set([member])
    return result


def test_the_first_good_run_is_what_the_next_one_is_compared_with(tmp_path: Path) -> None:
    first = judged(week(tmp_path, 1, 290))
    assert (first.status, first.last_good) == ("good", ())
    assert first.reasons == [
        "0.483 reproduces the published 0.48 (0.435 to 0.525; one seed)",
        "there is no earlier good run of this recipe",
    ]
    second = judged(week(tmp_path, 2, 285))
    assert (second.status, second.last_good) == ("good", (run_of(first).name,))
    assert second.drift.comparison.difference == pytest.approx(-5 / 601)


def test_a_drop_inside_the_published_band_is_a_regression_and_no_reference(tmp_path: Path) -> None:
    judged(week(tmp_path, 1, 312))
    dropped = judged(week(tmp_path, 2, 270))
    assert dropped.reproduction.outcome == "reproduced" and dropped.status == "regressed"
    reason = r"significantly worse than the last good run \S*-week-1: -7.0 points \(-.*, p < 0.001, one seed each\)"
    assert re.fullmatch(reason, dropped.reasons[0])
    assert json.loads(run_of(dropped).reproduction.read_text())["status"] == "regressed"
    assert judged(week(tmp_path, 3, 268)).last_good[0].endswith("week-1")


def test_a_decline_too_slow_to_be_seen_from_week_to_week_is_seen_from_the_first_good_run(tmp_path: Path) -> None:
    weeks = [judged(week(tmp_path, number, right)) for number, right in ((1, 310), (2, 307), (3, 304))]
    assert [one.status for one in weeks] == ["good"] * 3
    declined = judged(week(tmp_path, 4, 302))
    assert declined.last_good[0].endswith("week-3") and not declined.drift.is_drop
    assert declined.status == "regressed"
    assert re.match(r"significantly worse than the first good run .*-week-1: -1.3 points", declined.reasons[0])
    (earlier,) = json.loads(run_of(declined).reproduction.read_text())["drift_from_first"]["earlier"]
    assert earlier.endswith("week-1")


def test_a_run_that_failed_and_one_that_cannot_be_read_keep_no_other_from_its_result(tmp_path: Path) -> None:
    failed = broken(week(tmp_path, 1, 290), "the disk is full")
    unread = week(tmp_path, 2, 290, name=UNPUBLISHED)
    (run_of(unread).evaluation("base") / "result.json").unlink()
    results = judge_set([failed, unread, week(tmp_path, 3, 290)])
    assert [result.status for result in results] == ["failed", "failed", "good"]
    assert results[0].reasons == ["the disk is full"] and "cannot be read" in results[1].reasons[0]
    assert not run_of(failed).reproduction.exists()


def test_the_mean_over_seeds_is_judged_and_the_interval_over_seeds_is_shown(tmp_path: Path) -> None:
    result = judged(week_of_seeds(tmp_path, 1, {3: 294, 1: 290, 2: 286}))
    assert (result.status, result.accuracies) == ("good", {1: 290 / 601, 2: 286 / 601, 3: 294 / 601})
    assert result.reasons[0] == (
        "the mean 0.483 of 3 seeds (95 % over seeds 0.466 to 0.499) reproduces the published 0.48 (0.435 to 0.525)"
    )
    for run in result.runs.values():
        record = json.loads(run.reproduction.read_text())
        assert [one["seed"] for one in record["runs"]] == [1, 2, 3]
        assert record["reproduction"]["accuracy_by_seed"] == list(result.accuracies.values())


def test_seeds_that_decide_nothing_are_undecided_and_an_alarm(tmp_path: Path) -> None:
    """One of these seeds alone would be a regression, and another one would be good."""
    result = judged(week_of_seeds(tmp_path, 1, {1: 230, 2: 250, 3: 275}))
    assert (result.status, result.is_alarm) == ("undecided", True)
    assert result.reasons[0] == (
        "the mean 0.419 of 3 seeds (95 % over seeds 0.326 to 0.512) is below the published 0.48 (0.435 to 0.525), but "
        "the seeds do not tell whether that is luck"
    )
    assert judged(week(tmp_path, 2, 290)).last_good == ()


def test_the_seeds_decide_about_a_drop_where_both_weeks_have_several(tmp_path: Path) -> None:
    judged(week_of_seeds(tmp_path, 1, {1: 330, 2: 290, 3: 300}))
    luck = judged(week_of_seeds(tmp_path, 2, {1: 270, 2: 310, 3: 280}))
    assert luck.drift.comparison.p_value < 0.05 and luck.status == "good"
    reason = (
        r"no significant drop from the last good runs \S*-seed-1-week-1 and 2 others: -3.3 points "
        r"\(-\S+ to \+\S+, p = 0.\d+, over seeds, 3 seeds before and 3 seeds now\)"
    )
    assert re.fullmatch(reason, luck.reasons[1])
    judged(week_of_seeds(tmp_path / "steady", 1, {1: 310, 2: 311, 3: 312}))
    dropped = judged(week_of_seeds(tmp_path / "steady", 2, {1: 290, 2: 291}))
    assert dropped.status == "regressed"
    assert dropped.reasons[0].endswith("over seeds, 3 seeds before and 2 seeds now)")


def test_the_same_runs_again_are_no_drop_and_not_one_seed(tmp_path: Path) -> None:
    for number in (1, 2):
        result = judged(week_of_seeds(tmp_path, number, {1: 290, 2: 290}))
    assert result.status == "good"
    assert result.reasons[1].endswith(
        "+0.0 points (+0.0 to +0.0, p = 1.000, over items, since no accuracy varies with the seed, 2 seeds before and "
        "2 seeds now)"
    )


def test_a_seed_that_fails_is_named_and_the_others_are_judged(tmp_path: Path) -> None:
    member = week_of_seeds(tmp_path, 1, {1: 290, 2: 0, 3: 292})
    result = judged(replace(member, failures={2: "the disk is full\nand more"}))
    assert (result.status, result.reproduction.outcome) == ("failed", "reproduced")
    assert result.reasons[0] == "seed 2 has no result: the disk is full"
    assert result.reasons[1].startswith("the mean 0.484 of 2 seeds ")
    assert [run.reproduction.exists() for run in result.runs.values()] == [False] * 3
    (member.runs[3].evaluation("trained") / "result.json").unlink()
    one = judged(replace(member, failures={2: "the disk is full"}))
    assert one.reasons[1].startswith("seed 3 has no result: its folder cannot be read")
    assert one.reasons[2] == "0.483 reproduces the published 0.48 (0.435 to 0.525; one seed)"


def test_a_seed_that_stayed_behind_is_named(tmp_path: Path) -> None:
    result = judged(week_of_seeds(tmp_path, 1, {1: 290, 2: 292, 3: 200}))
    assert result.reasons[-1] == "seed 3 stayed behind: its metrics show no cause"


def test_a_seed_that_was_asked_other_items_is_no_repetition(tmp_path: Path) -> None:
    member = week_of_seeds(tmp_path, 1, {1: 290, 2: 290})
    write_evaluation(member.runs[2].evaluation("trained"), {"sampled": make_items("+-", mode="sampled")})
    result = judged(member)
    assert result.reasons[0] == "seed 2 has no result: its model was asked other items than the model of seed 1"
    assert (result.status, result.reproduction.seeds) == ("failed", (1,))


def test_many_baselines_raise_no_more_false_alarms_than_one(tmp_path: Path) -> None:
    """Six answers lost and none gained are p = 0.03 for one baseline alone."""
    judge_set([week(tmp_path, 1, 300), week(tmp_path, 1, 300, name=UNPUBLISHED)])
    later = [week(tmp_path, 2, 294), week(tmp_path, 2, 295, name=UNPUBLISHED)]
    together, alone = judge_set(later)[0], judged(later[0])
    assert together.drift.p_value == pytest.approx(2 * alone.drift.p_value)
    assert alone.status == "regressed" and together.status == "good"


def test_only_what_stands_is_finished(tmp_path: Path) -> None:
    config = load_config(Path("tests/e2e/configs/small.yaml"))
    run = run_of(week(tmp_path, 1, 290))
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
        broken(replace(week(folder, 3, 290), name="another"), "<b>out of memory</b>"),
    ]


def test_the_page_is_one_file_and_says_all(tmp_path: Path) -> None:
    page = reproduction_page("weekly", judge_set(a_set(tmp_path)), command="sightline reproduce --resume weekly")
    html = render_reproduction(page)
    assert_stands_alone(html)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html.partition("<body>")[2]))
    for part in (
        "2 of 3 baselines need a look: qwen2_5_vl_7b_geo3k_grpo regressed, another failed",
        "significantly worse than the last good run",
        "44.9 %", "43.5 % to 52.5 %", "not published", "-7.0p", "none yet", "no number", "0.1.2", "one seed",
        "&lt;b&gt;out of memory", "this run", "last good run", "sightline reproduce --resume weekly",
    ):  # fmt: skip
        assert part in text, part
    assert html.count("<svg") == 2


def test_page_and_figures_lie_in_the_sets_folder(tmp_path: Path) -> None:
    out = tmp_path / "weekly" / "summary.html"
    page = conclude("weekly", a_set(tmp_path / "runs"), out, command="")
    assert out.read_text().startswith("<!doctype html>")
    figures = json.loads((tmp_path / "weekly" / "summary.json").read_text())
    assert [one["status"] for one in figures["baselines"]] == ["regressed", "good", "failed"]
    assert figures["baselines"][0]["drift"]["difference"] == pytest.approx(-42 / 601)
    text = markdown(page, out)
    assert "| qwen2_5_vl_7b_geo3k_grpo | regressed | 44.9 % | one seed | 43.5 % to 52.5 % | -7.0 |" in text
    assert "- qwen2_5_vl_7b_geo3k_grpo, seed 1: 44.9 %, `qwen2_5_vl_7b_geo3k_grpo-week-2`" in text
    assert "- another, seed 1: no accuracy, `" in text
    assert "- another: <b>out of memory</b>" in text and str(out) in text
    assert {path.name for path in (tmp_path / "weekly").iterdir()} == {"summary.html", "summary.json"}


def test_mlflow_has_each_set_once_with_its_page(tmp_path: Path, new_database: Callable[[], str]) -> None:
    uri = new_database()
    out = tmp_path / "weekly" / "summary.html"
    page = conclude("weekly", a_set(tmp_path / "runs"), out, command="")
    for _ in range(2):
        show_conclusion(page, out, mlflow_uri=uri)
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert (run.info.run_name, run.info.status) == ("weekly", "FAILED")
    assert run.data.metrics["alarms"] == 2
    assert run.data.metrics["accuracy/qwen2_5_vl_7b_geo3k_grpo"] == pytest.approx(270 / 601)
    assert run.data.metrics["difference/qwen2_5_vl_7b_geo3k_grpo"] == pytest.approx(-42 / 601)
    assert len(client.get_metric_history(run.info.run_id, "alarms")) == 1
    assert run.data.tags["status.another"] == "failed"
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"summary.html", "summary.json"}
