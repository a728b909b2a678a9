"""A tracker that cannot be had is named before anything starts."""

import importlib.util
from collections.abc import Callable

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.preflight import check_config
from rl_core.planning.trackers import tracker_problems

Configure = Callable[..., RunConfig]
EVERYWHERE = ("tracking.tensorboard=true", "tracking.swanlab=true", "tracking.wandb={mode: offline}")


def test_a_tracker_whose_library_is_missing_is_named(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find_spec(name))
    (problem,) = check_config(configure(*EVERYWHERE))
    assert problem.where == "tracking.wandb"
    assert ".[trackers]" in problem.fix


def test_trackers_that_are_not_asked_for_need_not_be_installed(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert tracker_problems(configure()) == []
    assert len(tracker_problems(configure(*EVERYWHERE))) == 3
