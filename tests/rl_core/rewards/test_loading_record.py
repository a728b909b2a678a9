"""When a function is given up that scoring processes cannot load."""

import pytest

from rl_core.rewards.loading_record import MAX_FAILURES, LoadingRecord
from rl_core.rewards.messages import PoolOrder
from rl_core.rewards.spec import RewardSpec


@pytest.fixture
def record() -> LoadingRecord:
    specs = [RewardSpec(name=name, source="s", function="f", kwargs={}, has_parser=False) for name in ("a", "b")]
    return LoadingRecord(
        PoolOrder(
            specs=specs,
            workers=1,
            timeout_seconds=1.0,
            batch_timeout_seconds=1.0,
            load_timeout_seconds=7.0,
            memory_limit_bytes=1,
        )
    )


def test_an_import_that_ends_its_process_is_given_up_after_some_tries(record: LoadingRecord) -> None:
    for _ in range(MAX_FAILURES - 1):
        record.ended(1, "signal SIGKILL")
        assert record.loadable() == [0, 1]
    record.ended(1, "signal SIGKILL")
    assert record.loadable() == [0]
    assert (record.problem(0), record.problem(1)) == (
        None,
        "could not load b: its import ended the process: signal SIGKILL",
    )


def test_an_import_that_no_process_came_through_in_time_is_given_up_at_once(record: LoadingRecord) -> None:
    record.took_too_long(0)
    assert record.problem(0) == "could not load a: its import took longer than reward.load_timeout_seconds = 7"


def test_what_a_living_process_has_loaded_is_not_given_up(record: LoadingRecord) -> None:
    record.succeeded(0)
    for _ in range(2 * MAX_FAILURES):
        record.took_too_long(0)
        record.ended(0, "exit code 1")
    assert record.loadable() == [0, 1]
    record.gone([0])
    record.took_too_long(0)
    assert record.loadable() == [1], "nobody has it any more, and nobody gets it"


def test_a_success_forgets_failures(record: LoadingRecord) -> None:
    for _ in range(10):
        record.ended(0, "exit code 1")
        record.succeeded(0)
        record.gone([0])
    assert record.loadable() == [0, 1]


def test_processes_that_never_start_end_the_pool(record: LoadingRecord) -> None:
    record.ended(None, "exit code 1")
    record.started()
    for _ in range(MAX_FAILURES - 1):
        record.ended(None, "exit code 1")
    with pytest.raises(RuntimeError, match="the scoring processes do not start: exit code 1"):
        record.ended(None, "exit code 1")
