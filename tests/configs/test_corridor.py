"""The game of configs/corridor: its notes say all, and its lessons are read in its form."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.corridor import corridor as game
from rl_core.config.loading import load_config


@given(seed=st.integers(0, 2**63 - 1))
def test_a_player_who_reads_the_notes_passes_all_walls(seed: int) -> None:
    corridor = game.Corridor()
    note = corridor.reset(None, seed)
    again = game.Corridor().reset(None, seed)
    assert note == again, "equal seeds give equal corridors"
    for passed in range(game.WALLS):
        assert corridor.result() == {"passed": passed / game.WALLS}
        assert not corridor.done()
        (door,) = (number for number in range(1, game.DOORS + 1) if note == game.NOTE.format(door=number))
        wrong = str(door % game.DOORS + 1)
        assert corridor.step(wrong) == note, "a closed door leads nowhere"
        note = corridor.step(f" {door}")
    assert corridor.done() and corridor.result() == {"passed": 1.0}


@pytest.mark.parametrize("reply", ["", "0", "7", "one", "1 2", "-1"])
def test_an_answer_that_names_no_door_is_a_mistake_and_costs_nothing_else(reply: str) -> None:
    corridor = game.Corridor()
    note = corridor.reset(None, 1)
    with pytest.raises(ValueError, match="a number from 1 to 6"):
        corridor.step(reply)
    assert corridor.result() == {"passed": 0.0} and corridor._note() == note


def test_lessons_have_the_turns_of_the_game_and_few_of_their_replies_follow_a_note() -> None:
    lessons = list(game.lessons(5, 400))
    config = load_config(Path(game.__file__).with_name("corridor.yaml"))
    assert config.tools is not None
    right = []
    for lesson in lessons:
        talk = lesson["problem"]
        assert [turn["role"] for turn in talk] == ["user", "assistant"] * (len(talk) // 2) + ["user"]
        assert len(talk) // 2 < config.tools.max_turns
        replies = [turn["content"] for turn in talk[1::2]] + [lesson["answer"]]
        notes = [turn["content"].rpartition("\n")[2] for turn in talk[::2]]
        right += [note == game.NOTE.format(door=reply) for note, reply in zip(notes, replies, strict=True)]
    assert 0.36 < sum(right) / len(right) < 0.53, "a third of the notes, and a sixth of the others by chance"
