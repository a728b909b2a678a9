"""A few responses of a step, for people."""

from dataclasses import replace

from rl_core.config.stages import TrackingConfig
from rl_core.evaluation.items import write_items
from rl_core.run_directory import RunDirectory
from rl_core.tracking.generations import as_markdown, generation_tables
from tests.rl_core.evaluation.builders import make_items
from tests.rl_core.tracking.runs import take_steps, two_of_each, validate


def test_one_response_a_prompt_is_shown_with_its_reward_and_its_credit(tmp_path):
    run = RunDirectory(tmp_path)
    take_steps(run, 7)
    (table,) = two_of_each(run)(7).values()
    assert table == {
        "prompt": ["?", "?"],
        "response": ["1", "1"],
        "answer": ["1", "1"],
        "reward": [1.0, 1.0],
        "advantage": [1.0, None],
    }
    assert list(table) == ["prompt", "response", "answer", "reward", "advantage"]


def test_one_answer_a_held_out_prompt_is_shown_with_its_grade(tmp_path):
    run = RunDirectory(tmp_path)
    items = make_items("+-")
    failed = replace(items[1], components={}, error="took more than 10 s")
    write_items(run.validation(3), [items[0], replace(items[0], sample_index=1, response="again"), failed])
    table = two_of_each(run)(3)["val_generations"]
    assert table == {
        "prompt": [item.prompt for item in items],
        "response": [item.response for item in items],
        "answer": [item.answer for item in items],
        "reward": [1.0, None],
        "right": [True, False],
    }
    assert list(table) == ["prompt", "response", "answer", "reward", "right"]
    assert two_of_each(run)(4) == {}


def test_each_kind_of_table_has_a_number_of_its_own(tmp_path):
    run = RunDirectory(tmp_path)
    validate(run, 0)
    take_steps(run, 1)
    assert {name: len(table["prompt"]) for name, table in two_of_each(run)(0).items()} == {"val_generations": 2}
    assert {name: len(table["prompt"]) for name, table in two_of_each(run)(1).items()} == {"generations": 2}
    none = TrackingConfig(generations_to_log=0, val_generations_to_log=0)
    assert generation_tables(run, 0, none) == generation_tables(run, 1, none) == {}


def test_markdown_keeps_every_row_on_its_line_and_shows_tags_as_they_are():
    text = as_markdown({"response": ["<answer>3</answer>\na | b"], "reward": [1 / 3], "advantage": [None]})
    assert text.splitlines() == [
        "| response | reward | advantage |",
        "| --- | --- | --- |",
        r"| &lt;answer>3&lt;/answer><br>a \| b | 0.3333 |  |",
    ]
