"""What runs in a scoring process: the only place where a reward function is called.

It reads pickled orders from the server and answers with lines of JSON: the server opens nothing of a stranger's that
could run code.
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

from rl_core.rewards.calling import BatchFailed, RewardCaller, error_text
from rl_core.rewards.loading import load_scorer
from rl_core.rewards.messages import Call, CallResult, PoolOrder
from rl_core.rewards.spec import RewardSpec


def serve(connection: socket.socket) -> None:
    """Load the functions, then score until the server closes the connection."""
    orders, words = connection.makefile("rb"), _Words(connection)
    order, lanes = pickle.load(orders)  # noqa: S301 - from the server
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_limit_bytes, order.memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    words.say("started")
    functions = Functions(order)
    for lane in lanes:
        functions.load(lane)
        words.say("loaded", lane)
    for call in _calls(orders):
        words.say("begun")
        words.say(*functions.answer(call))


class Functions:
    """What this process loaded: for each lane what calls its function, or the reason why there is none."""

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._runner = asyncio.Runner()
        self.lanes: dict[int, RewardCaller | str] = {}

    def load(self, lane: int) -> None:
        """Import the function's source."""
        spec = self._order.specs[lane]
        try:
            self.lanes[lane] = self._caller(spec)
        except BaseException as error:  # noqa: BLE001 - a stranger's file may raise anything; each sample tells
            self.lanes[lane] = f"could not load {spec.name}: {error_text(error, spec)}"

    def _caller(self, spec: RewardSpec) -> RewardCaller:
        return RewardCaller(
            scorer=load_scorer(spec), memory_limit_bytes=self._order.memory_limit_bytes, runner=self._runner
        )

    def answer(self, call: Call) -> tuple[str, Any] | tuple[str, Any, float]:
        """("scored", one outcome for each of the first samples, the seconds they took together), or
        ("batch failed", the reason)."""
        samples = pickle.loads(call.samples)[call.start : call.stop]  # noqa: S301 - from the run, by way of the server
        caller = self.lanes[call.lane]
        if isinstance(caller, str):
            return "scored", [CallResult({}, None, caller)] * len(samples), 0.0
        began = time.perf_counter()
        try:
            outcomes = caller.outcomes(samples, timeout_seconds=call.timeout_seconds, reason=call.timeout_reason)
        except BatchFailed as error:
            return "batch failed", str(error)
        return "scored", outcomes, time.perf_counter() - began


class _Words:
    """What this process says to the server, and none that a reward forks from it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pid = os.getpid()

    def say(self, *words: Any) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # a call that forked came back twice; the copy has no sample to answer for
        self._connection.sendall(json.dumps(words).encode() + b"\n")


def _calls(orders: IO[bytes]) -> Iterator[Call]:
    while True:
        try:
            call: Call = pickle.load(orders)  # noqa: S301 - from the server
        except EOFError:
            return
        yield call
