"""The tools of a run that a user has written: they are called in processes apart, as rewards are."""

import json
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.digests import digest_of
from rl_core.isolation.pool import IsolatedPool
from rl_core.progress import LogEvent
from rl_core.tools.journal import Journal
from rl_core.tools.order import ToolOrder, ToolRequest, ToolResult
from rl_core.tools.tool import ToolSample
from rl_core.user_code.function import find_function


class OwnTools:
    """Calls the functions of a config that are a user's. A context manager; enter it before the generator starts."""

    def __init__(
        self, config: ToolsConfig, data: DataConfig, *, image_store: Path, journal: Journal, log_event: LogEvent
    ) -> None:
        """Starts nothing. `log_event` is called for every call that failed. Raises ValueError where a function is not
        found, and OSError where its file cannot be read."""
        functions = [find_function(function) for function in config.own]
        self._places = {function.name: place for place, function in enumerate(functions)}
        self._code = [dict(function.code) for function in functions]
        self._journal = journal
        self._log_event = log_event
        self._pool = IsolatedPool(
            ToolOrder.of(config, data),
            processes=config.workers,
            async_calls=config.async_calls,
            image_store=image_store,
        )

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all processes, even in the middle of a call."""
        self._pool.__exit__(kind, error, traceback)

    def begin(self, name: str, request: ToolRequest, *, version: int) -> "Future[ToolResult]":
        """Have a tool called, for what the weights of this version have sampled; what was answered before an
        interruption is not asked again. Calls of a fast tool may be held back until `flush`."""
        place = self._places[name]
        arguments = json.dumps(dict(request.arguments), sort_keys=True)
        call = digest_of([name, arguments, *request.key, self._code[place]])
        result: Future[ToolResult] = Future()
        if (known := self._journal.find(version, call)) is not None:
            result.set_result(known)
            return result

        def keep(came: "Future[ToolResult]") -> None:
            if came.cancelled():
                result.cancel()
                return
            try:
                found = came.result()
                if found.error is None:
                    self._journal.add(version, call, found)
                else:
                    of = {"prompt": request.sample.prompt_uid, "sample": request.sample.sample_index}
                    self._log_event("tool_failed", tool=name, reason=found.error, **of)
            except Exception as error:  # noqa: BLE001 - the pool cannot go on, or the disk is full: who waits must know
                result.set_exception(error)
            else:
                result.set_result(found)

        self._pool.add(place, request).add_done_callback(keep)
        return result

    def flush(self) -> None:
        """Have the calls made that were held back."""
        self._pool.flush()


_SCHEMAS: dict[str, list[dict[str, Any]]] = {}


def own_schemas(config: ToolsConfig, data: DataConfig) -> list[dict[str, Any]]:
    """The JSON schemas of the functions of a config that are a user's, which a process apart has imported. Raises
    ValueError where it could not, or where a function lacks a type or the description of a parameter."""
    functions = [find_function(function) for function in config.own]
    key = digest_of([[str(function.file), function.name, dict(function.code)] for function in functions])
    if key not in _SCHEMAS:
        with IsolatedPool(ToolOrder.of(config, data, describes=True), processes=1, async_calls=1) as pool:
            request = ToolRequest(sample=ToolSample(()), arguments={}, seed=0, place=0)
            described = [pool.add(place, request) for place in range(len(functions))]
            pool.flush()
            results = [one.result() for one in described]
        if problems := [f"tools.use {f}: {r.error}" for f, r in zip(config.own, results, strict=True) if r.error]:
            raise ValueError("\n".join(problems))
        _SCHEMAS[key] = [json.loads(result.shown[0]) for result in results]
    return _SCHEMAS[key]
