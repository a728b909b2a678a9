"""How long the calls of a function may take."""

import pytest

from rl_core.rewards.call_limits import ASYNC_GRACE_SECONDS, CallLimits
from rl_core.rewards.calling import SLICE_SECONDS
from rl_core.rewards.messages import PoolOrder, RewardSpec, Style


def spec(style: Style = "sample", *, is_async: bool = False) -> RewardSpec:
    return RewardSpec(name="n", source="s", function="f", kwargs={}, has_parser=False, style=style, is_async=is_async)


SPECS = [spec(), spec("batch"), spec(is_async=True)]


@pytest.fixture
def limits() -> CallLimits:
    return CallLimits(
        PoolOrder(
            specs=SPECS,
            timeout_seconds=10.0,
            batch_timeout_seconds=100.0,
            load_timeout_seconds=1000.0,
            memory_limit_bytes=1,
        )
    )


@pytest.mark.parametrize(
    ("function_index", "samples", "seconds", "call_seconds", "key"),
    [
        (0, 1, 10.0, 10.0, "timeout_seconds = 10"),
        (0, 5, 10.0 + SLICE_SECONDS, 10.0, "timeout_seconds = 10"),
        (1, 1, 10.0, 10.0, "timeout_seconds = 10"),
        (1, 5, 100.0, 100.0, "batch_timeout_seconds = 100"),
        (2, 5, 10.0 + ASYNC_GRACE_SECONDS, 10.0, "timeout_seconds = 10"),
    ],
)
def test_every_kind_has_its_limit_and_more_for_a_first_call(
    limits: CallLimits, function_index: int, samples: int, seconds: float, call_seconds: float, key: str
) -> None:
    later = limits.of(function_index, samples=samples, is_first=False)
    assert later == (seconds, call_seconds, f"no result within reward.{key}")
    first = limits.of(function_index, samples=samples, is_first=True)
    assert (first.seconds, first.call_seconds) == (seconds + 1000.0, call_seconds + 1000.0)
    assert f"{call_seconds + 1000:g}" in first.reason


@pytest.mark.parametrize(("seconds", "has_more"), [(0.1, False), (10.0, False), (10.1, True), (None, False)])
def test_what_a_first_call_took_decides_about_all_calls(
    limits: CallLimits, seconds: float | None, has_more: bool
) -> None:
    limits.learn(0, samples=1, seconds=seconds)
    assert (limits.of(0, samples=1, is_first=True).seconds > 1000.0) == has_more
    assert limits.of(1, samples=1, is_first=True).seconds > 1000.0, "another function"


def test_who_needed_long_once_may_need_it_again(limits: CallLimits) -> None:
    for seconds in (500.0, 0.1, None):
        limits.learn(0, samples=1, seconds=seconds)
    assert limits.of(0, samples=1, is_first=True).seconds == 1010.0
