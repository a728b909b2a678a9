"""When samples are sent, without a process."""

import pytest

from rl_core.rewards.messages import CallResult, Report
from rl_core.rewards.sample_queue import MAX_CHUNK, SampleQueue
from rl_core.rewards.spec import RewardSpec, Style
from tests.rl_core.rewards.samples import make_sample


def make_queue(
    style: Style = "sample", *, is_async: bool = False, workers: int = 2, async_calls: int = 3
) -> SampleQueue:
    spec = RewardSpec(name="x", source="x", function="x", kwargs={}, has_parser=False, style=style, is_async=is_async)
    return SampleQueue(spec, workers=workers, async_calls=async_calls)


def fill(queue: SampleQueue, count: int) -> list:
    return [queue.add(make_sample("x", index=index)) for index in range(count)]


def chunk_sizes(queue: SampleQueue, first: int = 0) -> list[int]:
    """Sizes of the chunks that are sent now."""
    sizes = []
    while samples := queue.next_chunk(first + len(sizes)):
        sizes.append(len(samples))
    return sizes


def report(chunk: int, count: int, *, seconds: float, start: int = 0) -> Report:
    return Report(
        chunk=chunk, function_index=0, start=start, results=[CallResult({}, None, "no")] * count, seconds=seconds
    )


def test_until_a_call_was_timed_each_process_gets_one_sample() -> None:
    queue = make_queue()
    fill(queue, 10)
    assert chunk_sizes(queue) == [1, 1]


@pytest.mark.parametrize(("seconds", "sizes"), [(1e-6, [MAX_CHUNK, 36]), (0.01, [2] * 50), (0.5, [1] * 100)])
def test_chunks_hold_a_fiftieth_of_a_second_of_work(seconds: float, sizes: list[int]) -> None:
    queue = make_queue()
    fill(queue, 101)
    queue.next_chunk(0)
    queue.take_report(report(0, 1, seconds=seconds))
    held_back = [size for size in chunk_sizes(queue, 1) if size != sizes[0]]
    queue.flush()
    assert held_back == []
    assert chunk_sizes(queue, 200) == (sizes[1:] if sizes[0] == MAX_CHUNK else [])


def test_an_async_function_gets_what_waits_whenever_a_process_is_free() -> None:
    queue = make_queue(is_async=True)
    assert [chunk_sizes(queue, number) for number in range(3) if fill(queue, 1)] == [[1], [1], []]
    fill(queue, 6)
    queue.take_report(report(0, 1, seconds=0.5))
    assert chunk_sizes(queue, 10) == [3]
    queue.take_report(report(1, 1, seconds=0.5))
    assert chunk_sizes(queue, 20) == [3]


def test_a_batch_is_sent_whole_after_the_flush() -> None:
    queue = make_queue("batch")
    fill(queue, 500)
    assert chunk_sizes(queue) == []
    queue.flush()
    assert chunk_sizes(queue) == [500]
    fill(queue, 2)
    assert chunk_sizes(queue, 1) == []


def test_a_report_answers_the_samples_it_names() -> None:
    queue = make_queue(workers=1, is_async=True)
    futures = fill(queue, 3)
    queue.next_chunk(7)
    assert queue.take_report(report(7, 1, start=2, seconds=0.1)) == [futures[2]]
    assert queue.take_report(report(7, 2, start=0, seconds=0.1)) == futures[:2]
    assert queue.abandon() == []


def test_giving_up_returns_what_was_sent_and_what_waits() -> None:
    queue = make_queue(workers=1)
    futures = fill(queue, 3)
    queue.next_chunk(0)
    assert queue.abandon() == futures
    assert queue.abandon() == []
