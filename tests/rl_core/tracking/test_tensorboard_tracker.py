"""TensorBoard shows each step once, whatever a killed process left; files and their reader are TensorBoard's own."""

import math

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from rl_core.run_directory import RunDirectory
from rl_core.tracking.follower import TrackerFollower
from rl_core.tracking.tensorboard_tracker import TensorboardTracker
from rl_core.tracking.tracker import STEP_KEY
from tests.rl_core.tracking.runs import take_steps, two_of_each, validate


def follower(run: RunDirectory) -> TrackerFollower:
    tracker = TensorboardTracker(run.tensorboard)
    return TrackerFollower(tracker, run.metrics, generations=two_of_each(run))


def shown(run: RunDirectory) -> EventAccumulator:
    """What TensorBoard itself makes of the folder."""
    return EventAccumulator(str(run.tensorboard), size_guidance={"tensors": 0}).Reload()


def values(run: RunDirectory, tag: str) -> list[tuple[int, float]]:
    return [(event.step, float(make_ndarray(event.tensor_proto))) for event in shown(run).Tensors(tag)]


def test_metrics_and_generations_of_every_step_are_shown(run):
    validate(run, 0)
    take_steps(run, 1, 2, 3)
    follower(run).finish()
    assert values(run, "val/accuracy") == [(0, pytest.approx(1 / 3))]
    assert values(run, "reward/overall") == [(step, pytest.approx(step / 7)) for step in (1, 2, 3)]
    assert [math.isnan(value) for _, value in values(run, "actor/grad_norm")] == [False, True, False]
    tables = shown(run).Tensors("generations/text_summary")
    assert [event.step for event in tables] == [1, 2, 3]
    (answers,) = shown(run).Tensors("val_generations/text_summary")
    assert answers.step == 0
    assert b"| prompt | response | answer | reward | right |" in answers.tensor_proto.string_val[0]
    assert b"| prompt | response | answer | reward | advantage |" in tables[0].tensor_proto.string_val[0]


def test_a_killed_and_continued_run_shows_each_step_once(run):
    take_steps(run, 1, 2, 3)
    follower(run).follow()  # a process that never closes its file
    first = next(run.tensorboard.iterdir())
    first.write_bytes(first.read_bytes()[:-20])  # the last record, which says that step 3 is complete, is torn
    assert TensorboardTracker(run.tensorboard).last_step() == 2
    take_steps(run, 4)
    follower(run).finish()
    assert TensorboardTracker(run.tensorboard).last_step() == 4
    for tag in ("reward/overall", STEP_KEY):
        assert [step for step, _ in values(run, tag)] == [1, 2, 3, 4]
    assert [event.step for event in shown(run).Tensors("generations/text_summary")] == [1, 2, 3, 4]
