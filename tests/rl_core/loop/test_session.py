"""A session ends what it started, whatever happens on the way."""

import logging
import shutil
from pathlib import Path

import pytest

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.config.run import RunConfig
from rl_core.digests import FileRecord
from rl_core.loop.session import Session
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


class Owner:
    """Something that a session ends; a lost device may refuse to."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.is_ended = False

    def close(self) -> None:
        self.is_ended = True
        if self.refuses:
            raise RuntimeError("CUDA error: device lost")

    def __exit__(self, *_: object) -> None:
        self.close()


def test_workers_that_cannot_be_ended_keep_nothing_else_alive(config: RunConfig, tmp_path: Path) -> None:
    """Another try must not go on with the loop of the failed one, whose loader has moved on."""
    session = Session(config, RunDirectory(tmp_path), progress=SilentProgress(), stop=StopRequest())
    workers, rewards = Owner(refuses=True), Owner(refuses=False)
    session._workers, session._rewards, session._loop = workers, rewards, object()
    with pytest.raises(RuntimeError, match="device lost"):
        session.close()
    assert workers.is_ended and rewards.is_ended
    assert (session._workers, session._rewards, session._loop) == (None, None, None)


def test_rewards_that_do_not_start_say_why(config: RunConfig, tmp_path: Path, monkeypatch) -> None:
    class Pool:
        def __init__(self, *args: object, **options: object) -> None: ...

        def __enter__(self) -> None:
            raise OSError("no process can be started")

    monkeypatch.setattr("rl_core.loop.session.RewardPool", Pool)
    session = Session(config, RunDirectory(tmp_path), progress=SilentProgress(), stop=StopRequest())
    with pytest.raises(OSError, match="no process"):
        _ = session.rewards
    session.close()


def test_a_best_checkpoint_that_is_lost_is_not_passed_over_in_silence(
    config: RunConfig, prepared_run: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunDirectory(tmp_path)
    run.data.symlink_to(prepared_run.data)
    config = config.model_copy(
        update={
            "trainer": config.trainer.model_copy(update={"save_freq": 1, "save_limit": 3, "val_freq": 1}),
            "merge": config.merge.model_copy(update={"checkpoint": "best"}),
        }
    )
    session = Session(config, run, progress=SilentProgress(), stop=StopRequest())

    def write(folder: Path) -> dict[str, FileRecord]:
        (folder / "state").write_text("state")
        return {}

    for step, score in enumerate((0.5, 0.75, 0.25), start=1):
        RunLogs(run).log_step(step, {"val/accuracy": score})
        info = CheckpointInfo(step=step, epoch=1, end_of_epoch=step == 3, validation_score=score)
        session.store.save(step, write, info=info)
    with caplog.at_level(logging.WARNING, "rl_core.loop.session"):
        assert session.trained_checkpoint().step == 2 and caplog.messages == []
        shutil.rmtree(run.checkpoints / "step-000002")
        assert session.trained_checkpoint().step == 1
    assert caplog.messages == [
        "the best checkpoint, step 2 (validation 0.75), is damaged or gone; step 1 (0.5) is taken instead"
    ]

    # A shorter run ended with step 3, which this one would not save.
    rare = config.trainer.model_copy(update={"save_freq": 7, "save_on_epoch_end": False})
    caplog.clear()
    longer = Session(config.model_copy(update={"trainer": rare}), run, progress=SilentProgress(), stop=StopRequest())
    with caplog.at_level(logging.WARNING, "rl_core.loop.session"):
        assert longer.trained_checkpoint().step == 1 and caplog.messages == []
