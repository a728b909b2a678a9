"""A thread of a pool, which has one process at a time do the tasks of the pool."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rl_core.isolation.call_queue import Task
from rl_core.isolation.limits import CallLimits, LoadingRecord
from rl_core.isolation.order import Call, Order, Result
from rl_core.isolation.printed import PrintedOutput
from rl_core.isolation.process import Ended, IsolatedProcess, OutOfTime
from rl_core.isolation.work import Stopped, Work
from rl_core.progress import LogEvent

MAX_BREAKS = 3
"""An input gets no result if so many processes have ended after they took it and before its call began. One such end
may be an accident: something outside killed the process."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What the threads of a pool have in common."""

    order: Order
    environment: Mapping[str, str]
    printed: PrintedOutput
    work: Work
    limits: CallLimits
    loading: LoadingRecord
    log_event: LogEvent | None


class IsolatedThread(threading.Thread):
    """Starts a new process when one has ended. Ends, with its process, when the work has stopped."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(name=f"{shared.order.kind}-functions", daemon=True)
        self._shared = shared
        self._work = shared.work
        self._task: Task | None = None

    def run(self) -> None:
        """The futures of the inputs depend on this thread: whatever ends it stops the work, with a reason."""
        try:
            while True:
                self._use_a_process()
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - most likely the disk with the event log is full
            self._work.stop(error)
        if self._task is not None:
            self._work.abandon(self._task.waiting)

    def _use_a_process(self) -> None:
        process = IsolatedProcess(self._shared.environment, output=self._shared.printed.descriptor)
        try:
            if self._load(process):
                called: set[int] = set()
                while self._do(process, called):
                    pass
        finally:
            process.end()

    def _load(self, process: IsolatedProcess) -> bool:
        """Wait until the process has imported all functions, with or without success. False if it has ended."""
        order, loading = self._shared.order, self._shared.loading
        indices = [index for index in range(len(order.specs)) if not self._work.is_given_up(index)]
        index: int | None = None
        try:
            process.send((order, indices), self._until(lambda: math.inf))
            (process.session,) = process.hear(partial(_after, "started"), self._until(lambda: math.inf))
            loading.succeeded(None)
            for index in indices:
                process.hear(partial(_after, "loaded"), self._until(lambda: order.load_timeout_seconds))
                loading.succeeded(index)
        except OutOfTime:
            assert index is not None
            reason = loading.took_too_long(index)
        except Ended:
            reason = loading.ended(index, process.fate())
        else:
            return True
        if reason is not None and index is not None:
            self._work.give_up_function(index, reason)
        return False

    def _do(self, process: IsolatedProcess, called: set[int]) -> bool:
        """Have the next task done, and handle its result. False if the process cannot take another task."""
        # A process that ends as soon as it has loaded breaks its task: its successors may do the same, for ever.
        was_ready = bool(called) or not process.has_ended
        self._task = task = self._work.next_task()
        if was_ready and process.has_ended:  # it ended while it waited, which is not the fault of these inputs
            self._work.put_back([task])
            self._task = None
            return False
        index, limits = task.function_index, self._shared.limits
        is_first = index not in called
        called.add(index)
        calls = max(self._shared.order.calls_of(one) for one, _ in task.waiting)
        limit_now = partial(limits.of, index, inputs=task.count, is_first=is_first, calls=calls)
        limit, has_begun, goes_on = limit_now(), False, True
        until = self._until(lambda: limit_now().seconds)
        try:
            call = Call(
                function_index=index,
                inputs=[one for one, _ in task.waiting],
                timeout_seconds=limit.call_seconds,
                timeout_reason=limit.reason,
            )
            process.send(call, until)
            process.hear(partial(_after, "begun"), until)
            has_begun = True
            answer = process.hear(partial(_answer_of, self._shared.order, task.count), until)
        except OutOfTime:
            reason, goes_on = limit_now().reason, False
            if is_first:
                limits.learn(index, inputs=task.count, seconds=None)
            process.end()
            self._failed(task, reason)
        except Ended:
            goes_on = False
            self._died(task, process.fate(), has_begun=has_begun)
        else:
            if isinstance(answer, str):
                self._failed(task, answer)
            else:
                results, seconds = answer
                if is_first:
                    took_too_long = any(result.error == limit.reason for result in results)
                    limits.learn(index, inputs=task.count, seconds=None if took_too_long else seconds)
                self._work.deliver(task, results, seconds=seconds)
        self._task = None
        return goes_on

    def _failed(self, task: Task, reason: str) -> None:
        """A task gave no results. One of its inputs may be the cause: each gets a call of its own."""
        if task.count == 1:
            self._work.deliver(task, [self._shared.order.failed(reason)], seconds=self._shared.order.timeout_seconds)
            return
        if self._shared.limits.is_batch(task.function_index, task.count):
            name = self._shared.order.specs[task.function_index].name
            kind = self._shared.order.kind
            _LOG.warning("%s %s failed on a batch of %d (%s); trying one by one", kind, name, task.count, reason)
            if self._shared.log_event is not None:
                self._shared.log_event(f"{kind}_batch_retried", function=name, samples=task.count, reason=reason)
        self._work.put_back(task.parts(1))

    def _died(self, task: Task, fate: str, *, has_begun: bool) -> None:
        """The process of a task has ended. If it ended before the call began, another process takes the task."""
        if has_begun:
            self._failed(task, f"the process died in the call: {fate}")
        elif task.breaks + 1 >= MAX_BREAKS:
            result = self._shared.order.failed(f"the processes died {MAX_BREAKS} times before the call")
            self._work.deliver(task, [result] * task.count, seconds=0.0)
        else:
            is_batch = self._shared.limits.is_batch(task.function_index, task.count)
            parts = [task] if is_batch else task.parts(1)
            self._work.put_back([replace(part, breaks=task.breaks + 1) for part in parts])

    def _until(self, seconds: Callable[[], float]) -> Callable[[], float]:
        """Gives the seconds that are left of so many from now on, or raises Stopped."""
        began = time.monotonic()

        def left() -> float:
            if self._work.has_stopped:
                raise Stopped
            return began + seconds() - time.monotonic()

        return left


def _after(word: str, words: list[Any]) -> list[Any]:
    first, *rest = words
    if first != word:
        raise ValueError(f"{first!r}, not {word!r}")
    return rest


def _answer_of(order: Order, count: int, words: list[Any]) -> tuple[list[Result], float] | str:
    """The results of at most `count` inputs and the seconds that they took; or why the whole batch failed."""
    if words[:1] == ["batch failed"]:
        return str(words[1])
    sent, seconds = _after("done", words)
    results = [order.result(*result) for result in sent]
    if not 0 < len(results) <= count:
        raise ValueError(f"{len(results)} results of {count} inputs")
    return results, float(seconds)
