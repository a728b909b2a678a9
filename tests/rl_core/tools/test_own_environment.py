"""The state of a conversation in a process, called here without one; test_conversations.py has the real processes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.tools import own_environment
from rl_core.tools.describing import described
from rl_core.tools.messages import EnvironmentCall, EnvironmentRequest, EnvironmentTurn, mark_of
from rl_core.tools.order import EnvironmentOrder
from rl_core.tools.own_environment import OwnEnvironment, SentTurn
from rl_core.tools.tool import Picture, ToolSample

GAMES = Path(__file__).with_name("games.py")
DATA = DataConfig.model_validate(
    {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
)
PICTURE = Picture("one", (28, 28), (28, 28), "one", (0, 0, 1, 1), (28, 28))
WAYS = st.fixed_dictionaries({"direction": st.sampled_from(["north", "south", "east", "up"])})
CALLS = st.builds(EnvironmentCall, st.just("move"), WAYS)
TURNS = st.lists(st.tuples(st.integers(0, 2), st.lists(CALLS, max_size=2)), max_size=8)


def says(name: str) -> list[Any]:
    """What a class says of itself."""
    written = f"{GAMES}:{name}"
    return described([written], ToolsConfig(environment=written), DATA)


def loaded() -> OwnEnvironment:
    written = f"{GAMES}:Walk"
    environment = EnvironmentOrder.of([written], ToolsConfig(environment=written), DATA).load(0)
    assert isinstance(environment, OwnEnvironment)
    return environment


def played(turns: list[tuple[int, list[EnvironmentCall]]], forgets: list[bool]) -> list[SentTurn]:
    """What the turns of three conversations come to, of which a process forgets all before some; a turn shows as many
    pictures as it has calls."""
    environment, found = loaded(), []
    past: dict[int, tuple[EnvironmentTurn, ...]] = {0: (), 1: (), 2: ()}
    shown = dict.fromkeys(past, 0)
    for (conversation, calls), forget in zip(turns, forgets, strict=True):
        if forget:
            environment = loaded()
        sample = ToolSample((PICTURE,) * shown[conversation])
        request = EnvironmentRequest(
            sample=sample,
            seed=7,
            conversation=conversation,
            past=past[conversation],
            calls=tuple(calls),
            row_pictures=0,
        )
        found.append(environment.result(request, environment.call(request)))
        if calls:
            marks = tuple(mark_of(result) for result in found[-1].results)
            past[conversation] += (EnvironmentTurn(tuple(calls), shown[conversation], marks),)
            shown[conversation] += len(calls)
    return found


@pytest.mark.usefixtures("own_imports")
@given(turns=TURNS, data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_state_that_is_made_again_is_the_same(turns: list[tuple[int, list[EnvironmentCall]]], data: Any) -> None:
    """Also where the environment draws from a global generator, or looks at the pictures. No result differs from that
    of before."""
    forgets = data.draw(st.lists(st.booleans(), min_size=len(turns), max_size=len(turns)))
    found = played(turns, forgets)
    assert found == played(turns, [False] * len(turns))
    assert not any(one.differs for one in found)


@pytest.mark.usefixtures("own_imports")
def test_old_states_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_environment, "MOST_SESSIONS", 2)
    east = [EnvironmentCall("move", {"direction": "east"})]
    turns = [(one, east) for one in (0, 1, 2, 0, 1, 2)]
    few = played(turns, [False] * 6)
    monkeypatch.undo()
    assert few == played(turns, [False] * 6)
    assert [found.numbers["moves"] for found in few] == [1, 1, 1, 2, 2, 2]


def test_an_environment_says_what_it_is() -> None:
    (methods,) = says("Walk")
    assert [schema["function"]["name"] for schema in methods] == ["move", "smell", "rest", "crash"]
    assert says("Guess") == [None]
    with pytest.raises(ValueError, match=r"games.py:Neither: .*either `step"):
        says("Neither")
