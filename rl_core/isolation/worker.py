"""What runs in an isolated process: the only place where a user's reward function or tool is called.

It reads pickled calls from the run and answers with lines of JSON, because the run must not unpickle anything that a
user's function could have written.
"""

import asyncio
import json
import os
import pickle
import resource
import socket
import time
from collections.abc import Iterator
from typing import IO, Any

from rl_core.isolation.calling import BatchFailed, FunctionCaller, error_text
from rl_core.isolation.order import Call, Order


def serve(connection: socket.socket) -> None:
    """Load the functions, then call them until the run closes the connection."""
    received, answers = connection.makefile("rb"), _Answers(connection)
    order, indices = pickle.load(received)  # noqa: S301 - from the run
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_limit_bytes, order.memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers.send("started", os.getsid(0))
    functions = Functions(order)
    for index in indices:
        functions.load(index)
        answers.send("loaded", index)
    for call in _calls(received):
        answers.send("begun")
        answers.send(*functions.answer(call))


class Functions:
    """The functions of this process, by their index: a caller, or the reason why loading failed."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._runner = asyncio.Runner()
        self.callers: dict[int, FunctionCaller | str] = {}

    def load(self, index: int) -> None:
        """Import the module of a function."""
        spec = self._order.specs[index]
        try:
            self.callers[index] = FunctionCaller(
                function=self._order.load(index), order=self._order, runner=self._runner
            )
        except BaseException as error:  # noqa: BLE001 - a user's file may raise anything; each input reports it
            self.callers[index] = f"could not load {spec.name}: {error_text(error, spec)}"

    def answer(self, call: Call) -> tuple[str, Any] | tuple[str, Any, float]:
        """("done", results of the first inputs, their seconds together), or ("batch failed", the reason)."""
        caller = self.callers[call.function_index]
        if isinstance(caller, str):
            return "done", [self._order.failed(caller)] * len(call.inputs), 0.0
        began = time.perf_counter()
        try:
            results = caller.results(call.inputs, timeout_seconds=call.timeout_seconds, reason=call.timeout_reason)
        except BatchFailed as error:
            return "batch failed", str(error)
        return "done", results, time.perf_counter() - began


class _Answers:
    """Sends answers to the run from this process, and from no process that a user function forks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pid = os.getpid()

    def send(self, *words: Any) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # a function forked, and its child returned as well; only the parent answers
        self._connection.sendall(json.dumps(words).encode() + b"\n")


def _calls(received: IO[bytes]) -> Iterator[Call]:
    while True:
        try:
            call: Call = pickle.load(received)  # noqa: S301 - from the run
        except EOFError:
            return
        yield call
