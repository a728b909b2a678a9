"""How long the calls of a function may take, and when a function that does not load is given up."""

import pytest

from rl_core.isolation.calling import SLICE_SECONDS
from rl_core.isolation.limits import MAX_FAILURES, CallLimits, LoadingRecord
from rl_core.isolation.order import ASYNC_GRACE_SECONDS
from tests.rl_core.rewards.samples import order_of, spec_of


@pytest.fixture
def limits() -> CallLimits:
    specs = [spec_of(), spec_of(style="batch"), spec_of(is_async=True)]
    seconds = {"timeout_seconds": 10.0, "batch_timeout_seconds": 100.0, "load_timeout_seconds": 1000.0}
    return CallLimits(order_of(specs, **seconds))


@pytest.mark.parametrize(
    ("function_index", "inputs", "seconds", "call_seconds", "key"),
    [
        (0, 1, 10.0, 10.0, "timeout_seconds = 10"),
        (0, 5, 10.0 + SLICE_SECONDS, 10.0, "timeout_seconds = 10"),
        (1, 1, 10.0, 10.0, "timeout_seconds = 10"),
        (1, 5, 100.0, 100.0, "batch_timeout_seconds = 100"),
        (2, 5, 10.0 + ASYNC_GRACE_SECONDS, 10.0, "timeout_seconds = 10"),
    ],
)
def test_every_kind_has_its_limit_and_more_for_a_first_call(limits, function_index, inputs, seconds, call_seconds, key):
    later = limits.of(function_index, inputs=inputs, is_first=False)
    assert later == (seconds, call_seconds, f"no result within reward.{key}")
    first = limits.of(function_index, inputs=inputs, is_first=True)
    assert (first.seconds, first.call_seconds) == (seconds + 1000.0, call_seconds + 1000.0)
    assert f"{call_seconds + 1000:g}" in first.reason


def test_an_input_of_several_calls_has_the_time_of_them(limits):
    limit = limits.of(0, inputs=1, is_first=False, calls=3)
    assert limit == (30.0, 30.0, "no result within 3 * reward.timeout_seconds = 30")


@pytest.mark.parametrize(("seconds", "has_more"), [(0.1, False), (10.0, False), (10.1, True), (None, False)])
def test_the_time_of_a_first_call_decides_about_all_calls(limits, seconds, has_more):
    limits.learn(0, inputs=1, seconds=seconds)
    assert (limits.of(0, inputs=1, is_first=True).seconds > 1000.0) == has_more
    assert limits.of(1, inputs=1, is_first=True).seconds > 1000.0, "another function"


def test_a_function_that_needed_long_once_may_need_it_again(limits):
    for seconds in (500.0, 0.1, None):
        limits.learn(0, inputs=1, seconds=seconds)
    assert limits.of(0, inputs=1, is_first=True).seconds == 1010.0


@pytest.fixture
def record() -> LoadingRecord:
    return LoadingRecord(order_of([spec_of("a"), spec_of("b")], load_timeout_seconds=7.0))


def test_an_import_that_ends_its_process_is_given_up_after_some_tries(record):
    for _ in range(MAX_FAILURES - 1):
        assert record.ended(1, "signal SIGKILL") is None
    assert record.ended(1, "signal SIGKILL") == "could not load b: its import ended the process: signal SIGKILL"
    assert record.ended(0, "signal SIGKILL") is None


def test_an_import_that_no_process_came_through_in_time_is_given_up_at_once(record):
    reason = "could not load a: its import took longer than reward.load_timeout_seconds = 7"
    assert record.took_too_long(0) == reason
    record.succeeded(0)
    assert [record.took_too_long(0) for _ in range(MAX_FAILURES)] == [None] * (MAX_FAILURES - 1) + [reason]


def test_processes_that_never_start_end_the_pool(record):
    record.ended(None, "exit code 1")
    record.succeeded(None)
    for _ in range(MAX_FAILURES - 1):
        record.ended(None, "exit code 1")
    with pytest.raises(RuntimeError, match="the processes of the reward functions do not start: exit code 1"):
        record.ended(None, "exit code 1")
