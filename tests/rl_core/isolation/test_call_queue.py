"""When samples are scored, and how many in one task; without a process."""

import pytest

from rl_core.isolation.call_queue import MAX_CHUNK, CallQueue
from rl_core.rewards.messages import Style
from tests.rl_core.rewards.samples import make_sample, spec_of


def make_queue(style: Style = "sample", *, is_async: bool = False, async_calls: int = 3) -> CallQueue:
    return CallQueue(0, spec_of(style=style, is_async=is_async), async_calls=async_calls)


def fill(queue: CallQueue, count: int) -> list:
    return [queue.add(make_sample("x", index=index)) for index in range(count)]


def task_sizes(queue: CallQueue) -> list[int]:
    """Sizes of the tasks that free processes get now."""
    sizes = []
    while queue.has_task:
        task = queue.next_task()
        assert task is not None
        sizes.append(task.count)
    assert queue.next_task() is None
    return sizes


def test_until_a_call_was_timed_each_process_gets_one_sample():
    queue = make_queue()
    fill(queue, 3)
    assert task_sizes(queue) == [1] * 3


@pytest.mark.parametrize(("seconds", "sizes"), [(1e-6, [MAX_CHUNK, 36]), (0.01, [2] * 50), (0.5, [1] * 100)])
def test_tasks_hold_a_fiftieth_of_a_second_of_work(seconds, sizes):
    queue = make_queue()
    queue.learn(seconds)
    fill(queue, 100)
    held_back = [size for size in task_sizes(queue) if size != sizes[0]]
    queue.flush()
    assert held_back == []
    assert task_sizes(queue) == (sizes[1:] if sizes[0] == MAX_CHUNK else [])


def test_an_async_function_gets_what_waits_up_to_a_limit():
    queue = make_queue(is_async=True)
    fill(queue, 7)
    assert task_sizes(queue) == [3, 3, 1]


def test_a_batch_is_what_waits_at_the_flush_whenever_a_process_is_free():
    queue = make_queue("batch")
    first = [queue.add(make_sample("x", index=index)) for index in (2, 1)]
    queue.flush()
    second = fill(queue, 1)
    task = queue.next_task()
    assert task is not None
    assert [future for _, future in task.waiting] == first[::-1]
    assert task_sizes(queue) == []
    queue.flush()
    assert [future for _, future in queue.clear()] == second


def test_later_samples_hold_back_nothing_that_was_flushed():
    queue = make_queue()
    queue.learn(0.002)  # ten samples are a task
    fill(queue, 13)
    queue.flush()
    fill(queue, 4)
    assert task_sizes(queue) == [10, 7]
    fill(queue, 9)
    assert task_sizes(queue) == []


def test_inputs_that_were_put_back_come_first_and_are_cleared_too():
    queue = make_queue("batch")
    futures = fill(queue, 3)
    queue.flush()
    task = queue.next_task()
    assert task is not None
    futures += fill(queue, 1)
    for part in task.parts(1, done=1):
        queue.put_back(part)
    assert task_sizes(queue) == [1, 1]
    queue.put_back(task)
    assert [future for _, future in queue.clear()] == futures
    assert queue.clear() == []
