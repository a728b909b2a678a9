"""Which failures of an epoch are worth another try."""

import errno
import logging
import math
from pathlib import Path

import pytest
from prefect.states import Failed

from rl_core.files import DiskFull
from rl_core.isolation.failed_share import TooManyFailures
from rl_core.loop.collecting import StaleWeights
from rl_core.loop.draws import TooFewInformativeGroups
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLockLost
from rl_core.stop import Interrupted
from rl_core.training.agreement import AgreementError
from rl_core.training.optimizer import NonFiniteGradients
from rl_core.training.probing import ProbeMismatch
from rl_core.workers.protocol import LostWorkers, WorkerDied
from tasks.cache.manifests import StageManifest, finite, read_manifest, write_manifest
from tasks.train import RETRIES, is_tried_again, is_worth_retrying, train_epoch


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: device lost"), ConnectionResetError(), OSError(errno.EIO, "")]
)
def test_a_failure_of_the_machine_is_retried(error: Exception) -> None:
    assert is_worth_retrying(error)


@pytest.mark.parametrize(
    "error",
    [
        Interrupted(2),
        AgreementError(),
        NonFiniteGradients(),
        ProbeMismatch(),
        RunLockLost(),
        StaleWeights(),
        TooFewInformativeGroups(),
        TooManyFailures(),
        ValueError("the config"),
        KeyError("a bug"),
        OSError(errno.ENOSPC, "disk full"),
        DiskFull.__new__(DiskFull),
    ],
)
def test_errors_that_would_recur_and_requested_stops_are_not_retried(error: Exception) -> None:
    if isinstance(error, DiskFull):
        error.errno = errno.ENOSPC
    assert not is_worth_retrying(error)


def test_a_failure_caused_by_a_full_disk_is_not_retried() -> None:
    error = RuntimeError("rewards cannot be scored any more")
    assert is_worth_retrying(error)
    error.__cause__ = OSError(errno.ENOSPC, "disk full")
    assert not is_worth_retrying(error)


def test_the_task_retries_by_that_rule_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    assert train_epoch.retries == RETRIES
    assert train_epoch.retry_condition_fn is is_tried_again
    assert not is_tried_again(train_epoch, None, Failed(data=ValueError("the config")))
    assert not caplog.messages
    assert is_tried_again(train_epoch, None, Failed(data=RuntimeError("CUDA error")))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "tried again" in record.message and "CUDA error" in record.message


def test_a_retry_after_a_loss_is_no_second_warning(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostWorkers(names="worker 0 of 2", machines=["a"], cause="SIGKILL")
    assert is_tried_again(train_epoch, None, Failed(data=WorkerDied("worker 0 of 2 ended.", lost)))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_step_that_was_skipped_for_its_gradient_does_not_keep_an_epoch_from_its_manifest(tmp_path: Path) -> None:
    metrics = {"actor/grad_norm": math.inf, "cold_start/final_loss": math.nan, "reward/overall": 0.5}
    manifest = StageManifest(
        stage="train-epoch-001", digest="d", outputs={}, result=finite(metrics), seconds=1.0, finished_at="now"
    )
    run = RunDirectory(tmp_path)
    write_manifest(run, manifest)
    assert read_manifest(run, "train-epoch-001").result == {"reward/overall": 0.5}
