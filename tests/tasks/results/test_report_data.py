"""What the report shows is what the run's folder holds."""

import json
from pathlib import Path

from rl_core.config.model import TinyModel
from rl_core.evaluation.items import write_items
from rl_core.evaluation.result import read_evaluation
from rl_core.families.registry import FAMILIES
from rl_core.records.metrics_log import RunLogs
from tasks.results.report_data import charts, gallery_items, report_page
from tasks.results.run_facts import RunFacts
from tests.tasks.finished_run import finish_run


def test_an_item_of_the_gallery_shows_what_was_answered_to_it_while_training(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="+-", trained="-+")
    assert all(not item.while_training for item in gallery_items(RunFacts(run))), "no validation yet"
    for step, evaluated in ((0, "base"), (2, "trained")):
        write_items(run.validation(step), read_evaluation(run.evaluation(evaluated))["greedy"])
    for item in gallery_items(RunFacts(run)):
        assert [(step, answer.is_right) for step, answer in item.while_training] == [
            (0, item.base.is_right),
            (2, item.trained.is_right),
        ]
        assert item.base.is_right != item.trained.is_right


def test_the_reward_is_drawn_by_its_parts_with_the_other_curves_of_the_training(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    RunLogs(run).log_step(
        3,
        {
            "reward/overall": 0.5,
            "reward/format": 1.0,
            "reward/failed": 0.0,
            "reward/zero_std_groups": 0.25,
            "response_length/mean": 9.0,
            "response_length/clip_ratio": 0.1,
            "actor/grad_norm": 0.3,
            "actor/approx_kl": 0.01,
            "actor/lr": 1e-6,
            "tools/turns": 2.0,
            "tools/calls": 1.5,
        },
    )
    drawn = {
        chart.title: [series.label for series in chart.series] for chart in charts(RunFacts(run)) if not chart.empty
    }
    assert drawn["Reward"] == ["reward", "accuracy", "format"]
    assert [*drawn] == [
        *("Reward", "Accuracy", "Signal", "Response length", "Cut responses", "Gradient norm", "KL", "Tools"),
        "Learning rate",
    ]


def test_the_page_begins_with_what_distinguishes_the_run_from_its_neighbours(tmp_path: Path) -> None:
    run = finish_run(tmp_path, "seed=7", "actor.optim.lr=2e-4")
    RunLogs(run).log_event("config-changed", step=1, changes={}, message="trainer.save_freq is 8 and was 16")
    page = report_page(RunFacts(run), commands={})
    shown = {fact.label: fact.value for fact in page.facts[:4]}
    assert [*shown] == ["Algorithm", "Data", "Seed", "Learning rate"]
    assert (shown["Algorithm"], shown["Seed"], shown["Learning rate"]) == ("grpo", "7", "0.0002")
    assert page.outcome == "open", "two items more of four are no proof"
    assert page.changes == ["trainer.save_freq is 8 and was 16"]


def test_the_page_says_by_what_the_model_is_known_to_be_computed_right(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    run.initial_model.mkdir(parents=True)
    fields = FAMILIES["llama"].tiny_fields(TinyModel(type="tiny", family="llama"), vocab_size=512)
    (run.initial_model / "config.json").write_text(json.dumps(fields))
    (model,) = (fact for fact in report_page(RunFacts(run), commands={}).facts if fact.label == "Model")
    assert model.note.endswith("; certificate: that of the family llama, made by the tests of Sightline")
