"""How samples reach the threads of a pool; without a process."""

import threading

from rl_core.isolation.work import Work
from rl_core.rewards.messages import CallResult
from tests.rl_core.rewards.samples import make_sample, order_of, spec_of

PATIENCE = 20.0


def test_a_slow_call_wakes_the_threads_for_the_samples_that_its_speed_no_longer_holds_back():
    work = Work(order_of([spec_of()]), async_calls=1)
    for _ in range(2):
        work.add(0, make_sample("x"))
    fast, slow = work.next_task(), work.next_task()
    result = CallResult({}, None, None)
    work.deliver(fast, [result], seconds=1e-6)
    held_back = [work.add(0, make_sample("x")) for _ in range(2)]
    tasks = []
    threads = [threading.Thread(target=lambda: tasks.append(work.next_task()), daemon=True) for _ in held_back]
    for thread in threads:
        thread.start()
    threads[0].join(0.2)  # both wait
    work.deliver(slow, [result], seconds=1.0)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(task.count for task in tasks) == [1, 1]
