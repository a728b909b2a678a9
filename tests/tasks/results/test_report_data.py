"""What the report shows is what the run's folder holds."""

from pathlib import Path

from rl_core.evaluation.items import write_items
from rl_core.evaluation.result import read_evaluation
from tasks.results.report_data import gallery_items
from tasks.results.run_facts import RunFacts
from tests.tasks.finished_run import finish_run


def test_an_item_of_the_gallery_tells_what_was_answered_to_it_while_training(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="+-", trained="-+")
    assert all(not item.while_training for item in gallery_items(RunFacts(run))), "no validation yet"
    for step, evaluated in ((0, "base"), (2, "trained")):
        write_items(run.validation(step), read_evaluation(run.evaluation(evaluated))["greedy"])
    for item in gallery_items(RunFacts(run)):
        assert [(step, said.is_right) for step, said in item.while_training] == [
            (0, item.base.is_right),
            (2, item.trained.is_right),
        ]
        assert item.base.is_right != item.trained.is_right
