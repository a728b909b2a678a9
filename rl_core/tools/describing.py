"""What a user's tools and MCP servers say of themselves: a separate process imports or starts them."""

import json
from collections.abc import Sequence
from typing import Any

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.digests import digest_of
from rl_core.isolation.pool import IsolatedPool
from rl_core.tools.messages import ToolRequest
from rl_core.tools.order import DescribingOrder, ToolOrder, server_order
from rl_core.tools.tool import ToolSample
from rl_core.user_code.function import find_function

_KNOWN: dict[str, list[Any]] = {}


def described(written: Sequence[str], config: ToolsConfig, data: DataConfig) -> list[Any]:
    """For each function or class that the config names so: what it says, as JSON values. Raises ValueError where one
    cannot be imported, or lacks a type or the description of a parameter."""
    found = [find_function(one) for one in written]
    key = [[one.written, str(one.file), dict(one.code)] for one in found]
    return _descriptions(DescribingOrder.of(written, config, data), key)


def listed(config: ToolsConfig, data: DataConfig) -> dict[str, list[dict[str, Any]]]:
    """[MCP server] -> the schemas of its tools. Each server is asked once in a process. Raises ValueError where one
    does not answer, or lacks a tool that the config names."""
    order = server_order(config.mcp, DescribingOrder.of([], config, data))
    descriptions = _descriptions(order, [[name, server.model_dump(mode="json")] for name, server in config.mcp.items()])
    return dict(zip(config.mcp, descriptions, strict=True))


def _descriptions(order: ToolOrder, key: object) -> list[Any]:
    """How each of the order's functions describes itself; what was described under this key is not asked again."""
    if not order.specs:
        return []
    digest = digest_of(key)
    if digest not in _KNOWN:
        with IsolatedPool(order, processes=1, async_calls=1) as pool:
            request = ToolRequest(sample=ToolSample(()), arguments={}, seed=0, place=0)
            waiting = [pool.add(place, request) for place in range(len(order.specs))]
            results = [one.result() for one in waiting]
        problems = [f"tools: {one.name}: {r.error}" for one, r in zip(order.specs, results, strict=True) if r.error]
        if problems:
            raise ValueError("\n".join(problems))
        _KNOWN[digest] = [json.loads(result.shown[0]) for result in results]
    return _KNOWN[digest]
