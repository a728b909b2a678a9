"""W&B gets each step once. Its client is the real one; offline it writes files, which are read back here."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rl_core.config.stages import WandbConfig
from rl_core.records.metrics_log import RunLogs, read
from rl_core.run_directory import RunDirectory
from rl_core.tracking.follower import TrackerFollower
from rl_core.tracking.tracker import STEP_KEY, TrackerUnavailable
from tests.rl_core.tracking.runs import take_steps, two_of_each, validate
from tests.servers import free_port

if TYPE_CHECKING:
    from wandb.proto.wandb_internal_pb2 import Record

    from rl_core.tracking.wandb_tracker import WandbTracker

ROOT = Path(__file__).parents[3]
OFFLINE = WandbConfig(mode="offline")
BLOCK = 32768
FILE_HEADER = 7


def tracker(run: RunDirectory, config: WandbConfig = OFFLINE) -> "WandbTracker":
    # Every process that collects tests would take seconds to import it.
    from rl_core.tracking.wandb_tracker import WandbTracker

    return WandbTracker(config, run.root, experiment="counting", run_name=run.name, run_config={"seed": 7})


def follower(run: RunDirectory) -> TrackerFollower:
    logs = RunLogs(run)
    return TrackerFollower(tracker(run), run.metrics, generations=two_of_each(run), log_event=logs.log_event)


def without_service() -> dict[str, str]:
    """The environment of a process that starts a W&B service of its own instead of using this process's."""
    return {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}


def records(path: Path) -> "Iterator[Record]":
    """The records of a `.wandb` file: LevelDB's log format after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), FILE_HEADER, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield Record.FromString(whole)
            whole = b""


def written(run: RunDirectory) -> "list[Record]":
    files = sorted(run.root.glob("wandb/offline-run-*/*.wandb"))
    return [record for file in files for record in records(file)]


def history(run: RunDirectory) -> list[dict[str, object]]:
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in written(run)
        if record.WhichOneof("record_type") == "history"
    ]


def test_steps_generations_and_configuration_are_written_offline(run):
    validate(run, 0)
    take_steps(run, 1, 2)
    follower(run).finish()
    steps = history(run)
    assert [step["_step"] for step in steps] == [step[STEP_KEY] for step in steps] == [0, 1, 2]
    assert steps[0]["val/accuracy"] == 1 / 3
    assert [step["reward/overall"] for step in steps[1:]] == [1 / 7, 2 / 7]
    about = next(record.run for record in written(run) if record.WhichOneof("record_type") == "run")
    assert (about.project, about.display_name) == ("counting", run.name)
    assert "seed" in {update.key for update in about.config.update}
    tables = sorted(run.root.glob("wandb/offline-run-*/files/media/table/generations_*.json"))
    assert len(tables) == 2
    (answers,) = run.root.glob("wandb/offline-run-*/files/media/table/val_generations_*.json")
    assert [row[-1] for row in json.loads(answers.read_text())["data"]] == [True, False]
    assert json.loads(tables[0].read_text())["data"] == [["?", "1", "1", 1 / 7, 1.0], ["?", "1", "1", 1 / 7, None]]


def test_name_group_tags_and_notes_are_those_of_the_config(run):
    """The run is found again by its own name all the same."""
    words = {
        "name": "rate halved",
        "group": "rates",
        "tags": ["ablation", "großes Modell"],
        "notes": "Does it *matter*?",
    }
    validate(run, 0)
    TrackerFollower(tracker(run, WandbConfig(mode="offline", **words)), run.metrics).finish()
    about = next(record.run for record in written(run) if record.WhichOneof("record_type") == "run")
    assert (about.display_name, about.run_group, sorted(about.tags), about.notes) == (
        *(words["name"], words["group"]),
        *(words["tags"], words["notes"]),
    )
    from rl_core.tracking.wandb_tracker import run_id

    assert about.run_id == run_id(run.name)


def test_a_process_that_was_killed_leaves_nothing_twice_and_nothing_out(run):
    """The process is killed while it waits for its next step, with steps that W&B may not have written yet."""
    script = (
        "import sys, time; from pathlib import Path; from rl_core.run_directory import RunDirectory\n"
        "from tests.rl_core.tracking.test_wandb_tracker import follower\n"
        "from tests.rl_core.tracking.runs import take_steps\n"
        "run = RunDirectory(Path(sys.argv[1])); followed = follower(run)\n"
        "for step in range(1, 4): take_steps(run, step); followed.follow()\n"
        "(run.root / 'followed').touch(); time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(run.root)], cwd=ROOT, env=without_service())
    while not (run.root / "followed").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    take_steps(run, 4)
    follower(run).finish()
    assert [step["_step"] for step in history(run)] == [1, 2, 3, 4]
    assert [step["reward/overall"] for step in history(run)] == [step / 7 for step in (1, 2, 3, 4)]


def test_online_without_a_key_is_an_outage_and_not_a_question(run, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    with pytest.raises(TrackerUnavailable, match="WANDB_API_KEY"):
        tracker(run, WandbConfig(mode="online")).last_step()


def test_a_server_that_is_not_there_is_a_warning(run, tmp_path):
    """In a process of its own: W&B keeps the address of the server for as long as a process lives."""
    take_steps(run, 1, 2)
    script = (
        "import sys; from pathlib import Path; from rl_core.config.stages import WandbConfig\n"
        "from rl_core.run_directory import RunDirectory; from rl_core.tracking.follower import TrackerFollower\n"
        "from rl_core.records.metrics_log import RunLogs\n"
        "from tests.rl_core.tracking.test_wandb_tracker import tracker\n"
        "run = RunDirectory(Path(sys.argv[1])); logs = RunLogs(run)\n"
        "follower = TrackerFollower(tracker(run, WandbConfig(mode='online')), run.metrics, log_event=logs.log_event)\n"
        "follower.catch_up(); follower.finish()\n"
    )
    settings = {
        "WANDB_BASE_URL": f"http://127.0.0.1:{free_port()}",
        "WANDB_API_KEY": "local-" + "0" * 40,
        "WANDB_INIT_TIMEOUT": "2",
    }
    done = subprocess.run([sys.executable, "-c", script, str(run.root)], cwd=ROOT, env=without_service() | settings)
    assert done.returncode == 0
    assert [event["kind"] for event in read(run.events)] == ["tracker-unavailable"]
