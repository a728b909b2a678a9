"""What a command prints at its end."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from flows.commands.tables import print_evaluations
from rl_core.evaluation.result import read_evaluation, write_evaluation
from rl_core.run_directory import RunDirectory
from tests.tasks.finished_run import finish_run


def printed(run: RunDirectory) -> str:
    text = StringIO()
    print_evaluations(run, Console(file=text, width=200))
    return text.getvalue()


def test_both_models_and_the_changes_of_their_answers_are_shown_for_every_pass(tmp_path: Path) -> None:
    text = printed(finish_run(tmp_path, base="+---?", trained="-++-?"))
    rows = [line.replace("│", "").split() for line in text.splitlines() if "greedy" in line]
    left_out = ["4", "(1", "not", "scored)"]
    assert rows == [
        ["base", "greedy", "25.0%", "4.6%", "to", "69.9%", *left_out, "0.0%", "0.0%"],
        ["trained", "greedy", "50.0%", "15.0%", "to", "85.0%", *left_out, "0.0%", "0.0%"],
    ]
    assert "2 items became right, 1 became wrong (McNemar p = 1.000)" in text
    assert f"trained  {tmp_path}" in text


def test_the_values_that_split_the_items_are_shown_as_they_are(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="+-", trained="++")
    for evaluated in ("base", "trained"):
        items = read_evaluation(run.evaluation(evaluated))["greedy"]
        kinds = [replace(item, categories={"kind": (f"[b]{n}\\[/b]",)}) for n, item in enumerate(items)]
        write_evaluation(run.evaluation(evaluated), {"greedy": kinds})
    text = printed(run)
    assert "base, greedy" in text and "trained, greedy" in text
    assert [text.count(f"[b]{n}\\[/b]") for n in (0, 1)] == [2, 2]


def test_a_pass_with_several_responses_an_item_has_no_pairs(tmp_path: Path) -> None:
    run = finish_run(tmp_path, "evaluation.n=2", "evaluation.modes=[sampled]", mode="sampled")
    assert "sampled" in printed(run) and "McNemar" not in printed(run)
