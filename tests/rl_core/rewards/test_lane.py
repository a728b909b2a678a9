"""When samples travel, without a process."""

import pytest

from rl_core.rewards.lane import MAX_CHUNK, Lane
from rl_core.rewards.messages import CallResult, Report
from rl_core.rewards.spec import RewardSpec, Style
from tests.rl_core.rewards.samples import make_sample


def make_lane(style: Style = "sample", *, is_async: bool = False, workers: int = 2, async_calls: int = 3) -> Lane:
    spec = RewardSpec(name="x", source="x", function="x", kwargs={}, has_parser=False, style=style, is_async=is_async)
    return Lane(spec, workers=workers, async_calls=async_calls)


def fill(lane: Lane, count: int) -> list:
    return [lane.add(make_sample("x", index=index)) for index in range(count)]


def departures(lane: Lane, first: int = 0) -> list[int]:
    """Sizes of the chunks that leave now."""
    sizes = []
    while samples := lane.depart(first + len(sizes)):
        sizes.append(len(samples))
    return sizes


def report(chunk: int, count: int, *, seconds: float, start: int = 0) -> Report:
    return Report(chunk=chunk, lane=0, start=start, outcomes=[CallResult({}, None, "no")] * count, seconds=seconds)


def test_until_a_call_was_timed_each_process_gets_one_sample() -> None:
    lane = make_lane()
    fill(lane, 10)
    assert departures(lane) == [1, 1]


@pytest.mark.parametrize(("seconds", "sizes"), [(1e-6, [MAX_CHUNK, 36]), (0.01, [2] * 50), (0.5, [1] * 100)])
def test_chunks_hold_a_fiftieth_of_a_second_of_work(seconds: float, sizes: list[int]) -> None:
    lane = make_lane()
    fill(lane, 101)
    lane.depart(0)
    lane.arrive(report(0, 1, seconds=seconds))
    held_back = [size for size in departures(lane, 1) if size != sizes[0]]
    lane.flush()
    assert held_back == []
    assert departures(lane, 200) == (sizes[1:] if sizes[0] == MAX_CHUNK else [])


def test_an_async_function_gets_what_waits_whenever_a_process_is_free() -> None:
    lane = make_lane(is_async=True)
    assert [departures(lane, number) for number in range(3) if fill(lane, 1)] == [[1], [1], []]
    fill(lane, 6)
    lane.arrive(report(0, 1, seconds=0.5))
    assert departures(lane, 10) == [3]
    lane.arrive(report(1, 1, seconds=0.5))
    assert departures(lane, 20) == [3]


def test_a_batch_leaves_whole_after_the_flush() -> None:
    lane = make_lane("batch")
    fill(lane, 500)
    assert departures(lane) == []
    lane.flush()
    assert departures(lane) == [500]
    fill(lane, 2)
    assert departures(lane, 1) == []


def test_a_report_answers_the_samples_it_names() -> None:
    lane = make_lane(workers=1, is_async=True)
    futures = fill(lane, 3)
    lane.depart(7)
    assert lane.arrive(report(7, 1, start=2, seconds=0.1)) == [futures[2]]
    assert lane.arrive(report(7, 2, start=0, seconds=0.1)) == futures[:2]
    assert lane.abandon() == []


def test_giving_up_returns_what_travels_and_what_waits() -> None:
    lane = make_lane(workers=1)
    futures = fill(lane, 3)
    lane.depart(0)
    assert lane.abandon() == futures
    assert lane.abandon() == []
