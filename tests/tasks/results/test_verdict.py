"""The sentence at the head of a report, and what to look at before believing it."""

from pathlib import Path

import pytest

from rl_core.records.metrics_log import RunLogs
from tasks.results.run_facts import RunFacts
from tasks.results.verdict import MOST_REMARKS, outcome, remarks, verdict
from tests.tasks.finished_run import finish_run


@pytest.mark.parametrize(
    ("base", "trained", "expected", "unexpected"),
    [
        (
            "-" * 40,
            "+" * 30 + "-" * 10,
            ["rose from 0.0 % to 75.0 %", "+75.0 points", "40 items", "seed"],
            "do not show",
        ),
        ("+" * 40, "+" * 10 + "-" * 30, ["fell from 100.0 % to 25.0 %", "-75.0 points"], "rose"),
        ("+---" * 10, "++--" + "+---" * 9, ["from 25.0 % to 27.5 %", "which chance explains"], "rose"),
        ("+-" * 20, "+-" * 20, ["did not change: 50.0 %"], "rose"),
    ],
)
def test_the_verdict_names_both_accuracies_and_their_significance(
    tmp_path: Path, base: str, trained: str, expected: list[str], unexpected: str
) -> None:
    sentence = verdict(RunFacts(finish_run(tmp_path, base=base, trained=trained)))
    assert all(part in sentence for part in expected), sentence
    assert unexpected not in sentence


@pytest.mark.parametrize(
    ("base", "trained", "way"),
    [
        ("-" * 20, "+" * 20, "higher"),
        ("+" * 20, "-" * 20, "lower"),
        ("-" * 20, "+" + "-" * 19, "open"),
        ("++", "++", "open"),
    ],
)
def test_a_way_counts_only_where_chance_does_not_explain_it(tmp_path: Path, base: str, trained: str, way: str) -> None:
    assert outcome(RunFacts(finish_run(tmp_path, base=base, trained=trained))) == way


def test_a_run_without_fault_has_nothing_to_look_at(tmp_path: Path) -> None:
    assert remarks(RunFacts(finish_run(tmp_path))) == []


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"reward/failed": 3.0}, "The reward failed for 3 in training"),
        ({"reward/zero_std_groups": 0.8}, "80.0 % of the groups had equal rewards"),
        ({"agreement/log_prob_gap_p999": 3.0}, "Generator and trainer disagreed by up to 3"),
    ],
)
def test_weaknesses_of_a_run_are_named(tmp_path: Path, metrics: dict[str, float], expected: str) -> None:
    run = finish_run(tmp_path)
    RunLogs(run).log_step(3, {"reward/overall": 0.5, **metrics})
    (remark,) = remarks(RunFacts(run))
    assert expected in remark


def test_the_gravest_of_many_faults_are_named(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="----", trained="----")
    every = {"reward/failed": 1.0, "reward/zero_std_groups": 1.0, "agreement/log_prob_gap_p999": 3.0}
    RunLogs(run).log_step(3, {"reward/overall": 0.5, **every})
    found = remarks(RunFacts(run))
    assert len(found) == MOST_REMARKS
    assert found[0] == "No held-out answer is right, before the training and after it."
