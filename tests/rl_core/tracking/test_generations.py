"""A few responses of a step, for people."""

from pathlib import Path

from rl_core.run_directory import RunDirectory
from rl_core.tracking.generations import COLUMNS, as_markdown, read_generations
from tests.rl_core.tracking.runs import take_steps


def test_one_response_a_prompt_is_shown_with_its_reward_and_its_credit(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    take_steps(run, 7)
    table = read_generations(run.rollouts(7), 2)
    assert table == {
        "prompt": ["?", "?"],
        "response": ["1", "1"],
        "answer": ["1", "1"],
        "reward": [1.0, 1.0],
        "advantage": [0.5, None],
    }
    assert tuple(table) == COLUMNS


def test_there_may_be_fewer_prompts_than_asked_for_and_no_table_at_all(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    take_steps(run, 1)
    table = read_generations(run.rollouts(1), 9)
    assert table is not None
    assert len(table["prompt"]) == 3
    assert read_generations(run.rollouts(1), 0) is None
    assert read_generations(run.rollouts(0), 9) is None


def test_markdown_keeps_every_row_on_its_line_and_shows_tags_as_they_are() -> None:
    text = as_markdown({"response": ["<answer>3</answer>\na | b"], "reward": [1 / 3], "advantage": [None]})
    assert text.splitlines() == [
        "| response | reward | advantage |",
        "| --- | --- | --- |",
        r"| &lt;answer>3&lt;/answer><br>a \| b | 0.3333 |  |",
    ]
