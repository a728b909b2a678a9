"""SwanLab's local records hold each step once; they are read as its dashboard reads them."""

import json
import sqlite3
from typing import Any

from rl_core.run_directory import RunDirectory
from rl_core.tracking.follower import TrackerFollower
from rl_core.tracking.swanlab_tracker import SwanlabTracker
from rl_core.tracking.tracker import STEP_KEY
from tests.rl_core.tracking.runs import take_steps, two_of_each, validate


def follower(run: RunDirectory) -> TrackerFollower:
    tracker = SwanlabTracker(run.swanlab, experiment="counting", run_name=run.name, run_config={"seed": 7})
    return TrackerFollower(tracker, run.metrics, generations=two_of_each(run))


def records(run: RunDirectory) -> dict[str, list[tuple[int, Any]]]:
    """(step, value) of every column, by its name."""
    (folder,) = run.swanlab.glob("run-*")
    with sqlite3.connect(run.swanlab / "runs.swanlab") as database:
        folders = dict(database.execute("select name, folder from tag").fetchall())
    lines = {
        name: [line for file in sorted((folder / "logs" / column).glob("*.log")) for line in file.open()]
        for name, column in folders.items()
    }
    return {name: [(row["index"], row["data"]) for row in map(json.loads, of_name)] for name, of_name in lines.items()}


def test_steps_and_generations_are_written_locally(run):
    validate(run, 0)
    take_steps(run, 1, 3)
    follower(run).finish()
    columns = records(run)
    assert columns["reward/overall"] == [(1, 1 / 7), (3, 3 / 7)]
    assert columns[STEP_KEY] == [(0, 0.0), (1, 1.0), (3, 3.0)]
    assert [(step, len(texts)) for step, texts in columns["val_generations"]] == [(0, 2)]
    assert "right: True" in columns["val_generations"][0][1][0]
    assert [(step, len(texts)) for step, texts in columns["generations"]] == [(1, 2), (3, 2)]
    assert "response: 1\nanswer: 1\n" in columns["generations"][0][1][0]


def test_a_continued_run_is_one_experiment_with_each_step_once(run):
    take_steps(run, 1, 2, 3)
    first = follower(run)
    first.follow()
    first.finish()
    take_steps(run, 4)
    follower(run).finish()
    assert records(run)["reward/overall"] == [(step, step / 7) for step in (1, 2, 3, 4)]
    with sqlite3.connect(run.swanlab / "runs.swanlab") as database:
        assert database.execute("select name from experiment").fetchall() == [(run.name,)]
