"""The answers to a held-out prompt while training are found by its uid, from the first validation to the newest."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.items import write_items
from rl_core.run_directory import RunDirectory
from tasks.results.run_facts import SHOWN_STEPS, spread, validated_steps, validation_history
from tests.rl_core.evaluation.builders import make_items


def test_each_prompt_has_its_answers_in_the_order_of_the_steps(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step, grades in ((10, "++"), (0, "--"), (5, "+-")):
        items = make_items(grades, response=f"after {step}")
        write_items(
            run.validation(step), [*items, *(replace(item, sample_index=1, response="again") for item in items)]
        )
    assert validated_steps(run) == [0, 5, 10]
    history = validation_history(run)
    assert list(history) == ["p0", "p1"], "the order in which they were asked"
    assert [(step, item.response, item.is_right) for step, item in history["p1"]] == [
        (0, "after 0", False),
        (5, "after 5", False),
        (10, "after 10", True),
    ]


def test_a_run_without_validation_has_no_history(tmp_path: Path) -> None:
    assert validated_steps(RunDirectory(tmp_path)) == []
    assert validation_history(RunDirectory(tmp_path)) == {}


def test_some_of_many_validations_are_shown(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step in range(0, 200, 10):
        write_items(run.validation(step), make_items("+"))
    steps = [step for step, _ in validation_history(run)["p0"]]
    assert len(steps) == SHOWN_STEPS and (steps[0], steps[-1]) == (0, 190)


@given(steps=st.lists(st.integers(0, 1000), unique=True).map(sorted), most=st.integers(2, 12))
def test_the_first_and_the_last_are_always_among_those_shown(steps: list[int], most: int) -> None:
    shown = spread(steps, most)
    assert len(shown) == min(len(steps), most) and shown == sorted(set(shown)) and set(shown) <= set(steps)
    assert shown[:1] == steps[:1] and shown[-1:] == steps[-1:]
    places = [steps.index(step) for step in shown]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1
