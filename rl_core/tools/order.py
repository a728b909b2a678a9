"""What a run asks of the processes that call what a user has written of its tools."""

import resource
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from typing_extensions import override

from rl_core.config.data import DataConfig
from rl_core.config.tools import PYTHON, McpServer, ToolsConfig
from rl_core.isolation.order import ASYNC_GRACE_SECONDS, Function, Order
from rl_core.tools.messages import ShownLimits, ToolResult, ToolSpec, TurnResult
from rl_core.user_code.function import find_function

PROGRAM_GRACE_SECONDS = 10.0
"""A program that has much memory takes seconds to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolOrder(Order):
    """The tools that are called in separate processes, and limits of what they show."""

    section: ClassVar = "tools"
    kind: ClassVar = "tool"

    specs: Sequence[ToolSpec]
    limits: ShownLimits

    @classmethod
    def of(cls, written: Sequence[str], config: ToolsConfig, data: DataConfig) -> Self:
        """The order of what the config names so. Raises ValueError where it is not found."""
        most = config.max_pixels or data.max_pixels
        return cls(
            specs=[spec_of(one, config) for one in written],
            timeout_seconds=config.timeout_seconds,
            batch_timeout_seconds=config.timeout_seconds,
            load_timeout_seconds=config.load_timeout_seconds,
            memory_limit_bytes=int(config.memory_limit_gib * 2**30),
            limits=ShownLimits(
                min_pixels=min(data.min_pixels, most),
                max_pixels=most,
                longest_text=config.longest_text,
            ),
        )

    @override
    def load(self, index: int) -> Function:
        from rl_core.tools.isolated_tool import load_tool  # only the processes of the tools load a user's code

        return load_tool(self.specs[index], self.limits)

    @override
    def result(self, *words: Any) -> Any:
        """The `ToolResult`."""
        shown, mistake, error = words
        if error is not None:
            return self.failed(str(error))
        parts = [str(value) if kind == "text" else b64decode(value, validate=True) for kind, value in shown]
        return ToolResult(parts, None if mistake is None else str(mistake), None)

    @override
    def failed(self, reason: str) -> Any:
        return ToolResult([], None, reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentOrder(ToolOrder):
    """The class of the environment, and limits of what it shows."""

    kind: ClassVar = "environment"

    @override
    def calls_of(self, one: Any) -> int:
        """Of a turn those of all turns: its process may have to make the state again."""
        return 1 + sum(len(turn.calls) for turn in one.past) + len(one.calls)

    @override
    def load(self, index: int) -> Function:
        from rl_core.tools.own_environment import load_environment  # only its processes load a user's code

        return load_environment(self.specs[index], self.limits)

    @override
    def result(self, *words: Any) -> Any:
        results, is_done, numbers, differs, error = words
        if error is not None:
            return self.failed(str(error))
        made = [ToolOrder.result(self, *one) for one in results]
        found = {str(name): float(value) for name, value in numbers.items()}
        return TurnResult(made, bool(is_done), found, None if differs is None else str(differs), None)

    @override
    def failed(self, reason: str) -> Any:
        return TurnResult([], False, {}, None, reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribingOrder(ToolOrder):
    """Functions and classes that are not called, but say what they are, as JSON."""

    @override
    def load(self, index: int) -> Function:
        from rl_core.tools.own_environment import load_description

        return load_description(self.specs[index])


def server_order(servers: Mapping[str, McpServer], order: ToolOrder) -> ToolOrder:
    """The order for these MCP servers, without a limit of memory: some reserve more than they use."""
    specs = [
        ToolSpec(
            name=f"mcp.{name}",
            source="rl_core.tools.server_tools",
            function="ServerTools",
            is_async=True,
            settings={"server": server},
            grace_seconds=ASYNC_GRACE_SECONDS,
        )
        for name, server in servers.items()
    ]
    return replace(order, specs=specs, memory_limit_bytes=resource.RLIM_INFINITY)


def spec_of(written: str, config: ToolsConfig) -> ToolSpec:
    """What a config names. Raises ValueError where it is not found."""
    if written == PYTHON:
        return ToolSpec(
            name=PYTHON,
            source="rl_core.tools.builtin.python",
            function="python_tool",
            is_async=False,
            settings={"config": config},
            grace_seconds=PROGRAM_GRACE_SECONDS,
        )
    try:
        found = find_function(written)
    except ValueError as error:
        raise ValueError(f"tools: {error}") from None
    is_async = found.text.is_async(found.name)
    return ToolSpec(
        name=written,
        source=found.module or found.file,
        function=found.name,
        is_async=is_async,
        grace_seconds=ASYNC_GRACE_SECONDS if is_async else 0.0,
    )
