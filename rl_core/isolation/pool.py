"""A pool of processes that call user functions (docs/architecture.md, "Rewards are isolated")."""

import os
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rl_core
from rl_core.isolation.limits import CallLimits, LoadingRecord
from rl_core.isolation.order import IMAGES_VARIABLE, Input, Order
from rl_core.isolation.printed import PrintedOutput
from rl_core.isolation.thread import IsolatedThread, Shared
from rl_core.isolation.work import Work
from rl_core.progress import LogEvent


class IsolatedPool:
    """Calls the functions of an order in processes of their own. A context manager; enter it before the generator
    starts. A call that fails costs its own input, whose result has an `error`. A result depends on its input alone,
    except that of a batch function, which gets all inputs that a `flush` finds at once, in the order of their keys."""

    def __init__(
        self,
        order: Order,
        *,
        processes: int,
        async_calls: int,
        log_event: LogEvent | None = None,
        image_store: Path | None = None,
    ) -> None:
        """Starts nothing. `log_event` is called for every batch that failed; a process calls an `async def` function
        with `async_calls` inputs at one time."""
        self._work = Work(order, async_calls=async_calls)
        self._printed = PrintedOutput()
        shared = Shared(
            order=order,
            environment=_environment(image_store),
            printed=self._printed,
            work=self._work,
            limits=CallLimits(order),
            loading=LoadingRecord(order),
            log_event=log_event,
        )
        self._threads = [IsolatedThread(shared) for _ in range(processes)]

    def __enter__(self) -> Self:
        self._printed.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all processes, even in the middle of a call, and cancel the results that have not come."""
        self._work.stop()
        for thread in self._threads:
            thread.join()
        self._printed.close()

    def add(self, function_index: int, one: Input) -> "Future[Any]":
        """Have a function called with an input. Inputs of a fast function may be held back until `flush`, and those of
        a batch function always are. Raises RuntimeError when the pool is closed, or cannot call any more."""
        return self._work.add(function_index, one)

    def flush(self) -> None:
        """Have the inputs done that were held back."""
        self._work.flush()


def _environment(image_store: Path | None) -> dict[str, str]:
    """Each process has one thread, because the generator needs the cores; and hashes, with them the order of sets, are
    equal in every run."""
    images = {} if image_store is None else {IMAGES_VARIABLE: str(image_store.absolute())}
    root = str(Path(rl_core.__file__).parent.parent)
    search = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | images | {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
