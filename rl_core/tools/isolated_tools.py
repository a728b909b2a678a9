"""The tools of a run that are called in separate processes, as rewards are: what a user has written, and `python`."""

import json
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.digests import digest_of
from rl_core.isolation.pool import IsolatedPool
from rl_core.progress import LogEvent
from rl_core.tools.describing import listed
from rl_core.tools.journal import Journal
from rl_core.tools.messages import EnvironmentRequest, ToolRequest, ToolResult, TurnResult
from rl_core.tools.order import EnvironmentOrder, ToolOrder, server_order
from rl_core.tools.tool import ToolSample
from rl_core.user_code.function import find_function


class IsolatedTools:
    """Calls the tools of a config in separate processes, and holds the environments of its conversations. A
    conversation always asks the same process about its environment; what a process held that has ended is made again
    from the calls. A context manager; enter it before the generator starts."""

    def __init__(
        self, config: ToolsConfig, data: DataConfig, *, image_store: Path, journal: Journal, log_event: LogEvent
    ) -> None:
        """Starts nothing that lasts. `log_event` is called for every call that failed. Raises ValueError where a
        function is not found, or as `listed`, and OSError where its file cannot be read."""
        found = {written: find_function(written) for written in config.user_code}
        self._code = {written: dict(one.code) for written, one in found.items()}
        self._config = config
        self._listed = listed(config, data)
        self._journal = journal
        self._log_event = log_event
        self._order = ToolOrder.of(config.isolated, config, data)
        environments = [] if config.environment is None else [config.environment]
        self._environment_order = EnvironmentOrder.of(environments, config, data)

        def pool(order: ToolOrder, processes: int) -> IsolatedPool:
            calls = config.async_calls
            return IsolatedPool(order, processes=processes, async_calls=calls, image_store=image_store)

        self._pool = pool(self._order, config.workers if config.isolated else 0)
        self._servers = {name: pool(server_order({name: one}, self._order), 1) for name, one in config.mcp.items()}
        names = [found[written].name if written in found else written for written in config.isolated]
        self._functions = {name: place for place, name in enumerate(names)}
        self._server_of = {
            schema["function"]["name"]: self._servers[server]
            for server, schemas in self._listed.items()
            for schema in schemas
        }
        self._environments = [pool(self._environment_order, 1) for _ in environments for _ in range(config.workers)]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._journal.check_servers(self._listed)
        for pool in (self._pool, *self._servers.values(), *self._environments):
            self._running.enter_context(pool)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all processes, even in the middle of a call."""
        self._running.close()

    def call(self, name: str, request: ToolRequest, *, version: int) -> "Future[ToolResult]":
        """Have a function called, or a tool of an MCP server, for what the weights of this version have sampled; what
        was answered before an interruption is not asked again."""
        arguments = json.dumps(dict(request.arguments), sort_keys=True)
        if (pool := self._server_of.get(name)) is not None:
            place, code, sent = 0, None, replace(request, arguments={name: dict(request.arguments)})
        else:
            pool, place, sent = self._pool, self._functions[name], request
            code = self._code.get(self._config.isolated[place])
        call = digest_of([name, arguments, *request.key, *self._sight(request.sample), code])
        return self._journal.ask(
            self._order,
            call,
            lambda: pool.add(place, sent),
            version=version,
            heard=lambda result: self._failed(name, request.sample, result.error),
        )

    def turn(self, request: EnvironmentRequest, *, version: int) -> "Future[TurnResult]":
        """Have the calls of a turn made in the conversation's environment, as `call`. What was answered is asked again
        where a later turn needs the state."""
        name = self._config.environment
        assert name is not None, "else no conversation has one"
        turns = [*(turn.calls for turn in request.past), request.calls]
        calls = [[[call.method, json.dumps(dict(call.arguments), sort_keys=True)] for call in turn] for turn in turns]
        sight = [turn.pictures for turn in request.past], *self._sight(request.sample)
        return self._journal.ask(
            self._environment_order,
            digest_of(["environment", calls, *sight, *request.key, request.seed, self._code[name]]),
            lambda: self._environments[request.conversation % len(self._environments)].add(0, request),
            version=version,
            heard=lambda result: self._heard(name, request.sample, result),
        )

    def _sight(self, sample: ToolSample) -> tuple[list[str], list[int]]:
        """What an answer depends on besides the call: the pictures of the conversation, and the limits of what is
        shown."""
        limits = self._order.limits
        shown = [limits.min_pixels, limits.max_pixels, limits.longest_text]
        return [picture.uid for picture in sample.pictures], shown

    def forget_failures(self) -> None:
        """Have the calls that failed made again when the run goes on."""
        self._journal.forget_failures()

    def _heard(self, name: str, sample: ToolSample, result: TurnResult) -> None:
        self._failed(name, sample, result.error)
        if result.differs is not None:
            self._event("environment_differs", name, sample, why=result.differs)

    def _failed(self, name: str, sample: ToolSample, reason: str | None) -> None:
        if reason is not None:
            self._event("tool_failed", name, sample, reason=reason)

    def _event(self, kind: str, name: str, sample: ToolSample, **why: str) -> None:
        self._log_event(kind, tool=name, **why, prompt=sample.prompt_uid, sample=sample.sample_index)
