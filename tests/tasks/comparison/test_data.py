"""The page that compares runs shows what their folders hold."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from rl_core.evaluation.comparison import compare_groups
from tasks.comparison.data import charts, comparison_page, group_shares
from tasks.comparison.groups import RunGroup, group_runs
from tasks.comparison.page import ComparisonPage
from tasks.comparison.record import EXPERIMENT, as_json, headline_metrics, show_comparison, write_comparison
from tests.tasks.finished_run import finish_run

GRPO = ["++++------", "+++-+-----"]
RLOO = ["+++++++---", "++++++-+--"]


@pytest.fixture
def groups(tmp_path: Path) -> list[RunGroup]:
    """Two recipes with two seeds each."""
    runs = [
        finish_run(tmp_path, f"seed={seed}", f"algorithm.advantage.type={name}", base="+---------", trained=signs,
                   rewards=[0.1, seed / 10, 0.5, *([0.6] if seed == 2 else [])])
        for name, by_seed in (("grpo", GRPO), ("rloo", RLOO))
        for seed, signs in enumerate(by_seed, start=1)
    ]  # fmt: skip
    return group_runs(runs)


def page_of(groups: list[RunGroup], *, num_items: int = 24) -> ComparisonPage:
    return comparison_page(groups, num_items=num_items)


def test_groups_have_their_accuracy_and_the_second_is_compared_with_the_first(groups: list[RunGroup]) -> None:
    page = page_of(groups)
    assert (page.title, page.mode, page.num_items) == ("grpo vs rloo", "greedy", 10)
    assert [row.accuracy.by_seed for row in page.groups] == [(0.4, 0.4), (0.7, 0.7)]
    assert [row.base for row in page.groups] == [0.1, 0.1]
    (row,) = page.comparisons
    assert (row.label, row.reference, row.place) == ("rloo", "grpo", 1)
    shares = [group_shares(group, "greedy") for group in groups]
    assert row.comparison == compare_groups(*shares)
    assert row.p_items == row.comparison.p_value
    assert row.p_seeds is None  # the seeds do not vary
    assert (len(row.comparison.gained), len(row.comparison.lost)) == (5, 0)
    assert page.remarks == []


def test_the_flipped_items_are_shown_with_what_every_model_said(groups: list[RunGroup]) -> None:
    items = page_of(groups).items
    assert len(items) == 5
    first = items[0]
    assert first.kinds == ["gained-1"]
    assert [(group.label, group.right, group.models) for group in first.groups] == [("grpo", 0, 2), ("rloo", 2, 2)]
    assert [answer.times for answer in first.groups[0].answers] == [2]
    assert first.images[0].startswith("data:image/png;base64,")
    assert len(page_of(groups, num_items=2).items) == 2
    assert page_of(groups, num_items=0).items == []


def test_curves_have_the_range_of_the_seeds_as_far_as_all_have_come(groups: list[RunGroup]) -> None:
    reward = charts(groups)[0].series[0]
    assert (reward.label, reward.steps) == ("grpo", [1, 2, 3])
    assert reward.values == pytest.approx([0.1, 0.15, 0.5])
    assert reward.band == ([0.1, 0.1, 0.5], [0.1, 0.2, 0.5])
    alone = [RunGroup(label="one", runs=groups[0].runs[:1])]
    assert charts(alone)[0].series[0].band is None


def test_without_pictures_items_are_shown_all_the_same(groups: list[RunGroup]) -> None:
    for group in groups:
        for run in group.runs:
            (run.run.data / "images.arrow").unlink()
    assert [item.images for item in page_of(groups).items] == [[]] * 5


def test_a_run_that_is_not_evaluated_is_in_the_curves_alone(groups: list[RunGroup]) -> None:
    run = groups[1].runs[0]
    shutil.rmtree(run.run.evaluation("trained"))
    page = page_of(groups)
    assert page.groups[1].accuracy.by_seed == (0.7,)
    assert page.remarks == [f"{run.run.name} is not evaluated yet: it is only in the curves."]
    assert [row.accuracy is None for row in page.runs] == [False, False, True, False]
    shutil.rmtree(groups[1].runs[1].run.evaluation("trained"))
    page = page_of(groups)
    assert (page.groups[1].accuracy, page.comparisons, page.items) == (None, [], [])
    assert len(page.charts[0].series) == 2


def test_obstacles_to_a_comparison_are_named(tmp_path: Path) -> None:
    first = finish_run(tmp_path, trained="++--")
    longer = finish_run(tmp_path, "rollout.n=4", trained="++--+")
    otherwise = finish_run(tmp_path, "rollout.max_response_length=16", trained="++++")
    twice = finish_run(tmp_path / "again", trained="++--")
    page = page_of(group_runs([first, longer], {}))
    assert page.comparisons == []
    assert "4 and 5 items, 1 of them on one side only" in page.remarks[0]
    assert "not measured in the same way" in page_of(group_runs([first, otherwise])).remarks[0]
    (repeated,) = page_of(group_runs([first, twice])).remarks
    assert "several runs with one seed" in repeated


def test_a_reward_file_that_is_gone_stands_in_no_ones_way(tmp_path: Path) -> None:
    reward = tmp_path / "mine.py"
    reward.write_text("def score(sample): return 0.0")
    runs = [finish_run(tmp_path, f"rollout.n={n}", f"reward.function={reward}:score") for n in (2, 4)]
    reward.unlink()
    assert page_of(group_runs(runs)).remarks == []


def test_several_comparisons_make_each_less_certain(tmp_path: Path) -> None:
    runs = [
        finish_run(tmp_path, f"rollout.n={n}", base="-" * 20, trained="+" * right + "-" * (20 - right))
        for n, right in ((4, 2), (8, 8), (16, 10))
    ]
    page = page_of(group_runs(runs))
    raw = [row.comparison.p_value for row in page.comparisons]
    assert [row.p_items for row in page.comparisons] == [raw[0], 2 * raw[1]]


def test_too_many_groups_are_refused(tmp_path: Path) -> None:
    runs = [finish_run(tmp_path, f"rollout.n={n}") for n in range(2, 9)]
    with pytest.raises(ValueError, match="7 groups"):
        page_of(group_runs(runs))


def test_modes_must_have_something_in_common(tmp_path: Path) -> None:
    one = finish_run(tmp_path, "rollout.n=2", "evaluation.modes=[greedy]")
    other = finish_run(tmp_path, "rollout.n=4", "evaluation.modes=[sampled]", mode="sampled")
    with pytest.raises(ValueError, match="no common mode"):
        page_of(group_runs([one, other]))


def test_scripts_and_mlflow_get_the_same_figures(groups: list[RunGroup]) -> None:
    page = page_of(groups)
    figures = json.loads(json.dumps(as_json(page, groups)))
    assert figures["groups"][1]["accuracy_by_seed"] == [0.7, 0.7]
    assert figures["groups"][0]["runs"] == [run.run.name for run in groups[0].runs]
    (row,) = figures["comparisons"]
    assert row["difference"] == pytest.approx(0.3)
    assert (row["over_seeds"], len(row["flipped"])) == (None, 5)
    metrics = headline_metrics(page)
    assert metrics["difference/rloo"] == row["difference"]
    assert metrics.keys() == {"accuracy/grpo", "accuracy/rloo", "difference/rloo", "p_items/rloo"}


@pytest.fixture
def two_recipes(tmp_path: Path) -> list[RunGroup]:
    runs = [finish_run(tmp_path / "runs", f"rollout.n={n}", trained=signs) for n, signs in ((4, "+--"), (8, "++-"))]
    return group_runs(runs)


def test_mlflow_has_each_comparison_once(
    two_recipes: list[RunGroup], new_database: Callable[[], str], tmp_path: Path
) -> None:
    out, uri = tmp_path / "page.html", new_database()
    for shown in (two_recipes, two_recipes, two_recipes[::-1]):
        page = write_comparison(shown, out, num_items=3)
        show_comparison(page, shown, out, mlflow_uri=uri)
    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    runs = {run.info.run_name: run for run in found}
    assert runs.keys() == {"4 vs 8", "8 vs 4"} and len(found) == 2
    run = runs["4 vs 8"]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["difference/8"] == pytest.approx(1 / 3)
    assert len(client.get_metric_history(run.info.run_id, "difference/8")) == 1
    assert run.data.tags["group.8"] == two_recipes[1].runs[0].run.name
    assert "do not differ significantly" in run.data.tags["verdict.8"]
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"page.html", "page.json"}


def test_an_outage_is_a_warning(two_recipes: list[RunGroup], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "folder.db").mkdir()
    page = write_comparison(two_recipes, tmp_path / "page.html", num_items=3)
    show_comparison(page, two_recipes, tmp_path / "page.html", mlflow_uri=f"sqlite:///{tmp_path}/folder.db")
    assert "the comparison: not sent" in caplog.text
