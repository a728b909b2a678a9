"""When a function is given up that scoring processes cannot load."""

import pytest

from rl_core.rewards.loading_record import MAX_FAILURES, LoadingRecord
from rl_core.rewards.messages import PoolOrder, RewardSpec


@pytest.fixture
def record() -> LoadingRecord:
    specs = [RewardSpec(name=name, source="s", function="f", kwargs={}, has_parser=False) for name in ("a", "b")]
    return LoadingRecord(
        PoolOrder(
            specs=specs,
            timeout_seconds=1.0,
            batch_timeout_seconds=1.0,
            load_timeout_seconds=7.0,
            memory_limit_bytes=1,
        )
    )


def test_an_import_that_ends_its_process_is_given_up_after_some_tries(record: LoadingRecord) -> None:
    for _ in range(MAX_FAILURES - 1):
        assert record.ended(1, "signal SIGKILL") is None
    assert record.ended(1, "signal SIGKILL") == "could not load b: its import ended the process: signal SIGKILL"
    assert record.ended(0, "signal SIGKILL") is None


def test_an_import_that_no_process_came_through_in_time_is_given_up_at_once(record: LoadingRecord) -> None:
    reason = "could not load a: its import took longer than reward.load_timeout_seconds = 7"
    assert record.took_too_long(0) == reason
    record.succeeded(0)
    assert [record.took_too_long(0) for _ in range(MAX_FAILURES)] == [None] * (MAX_FAILURES - 1) + [reason]


def test_a_success_forgets_failures(record: LoadingRecord) -> None:
    for _ in range(10):
        assert record.ended(0, "exit code 1") is None
        record.succeeded(0)


def test_processes_that_never_start_end_the_pool(record: LoadingRecord) -> None:
    record.ended(None, "exit code 1")
    record.succeeded(None)
    for _ in range(MAX_FAILURES - 1):
        record.ended(None, "exit code 1")
    with pytest.raises(RuntimeError, match="the scoring processes do not start: exit code 1"):
        record.ended(None, "exit code 1")
