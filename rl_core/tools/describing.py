"""What a user's tools say of themselves: a process apart imports them."""

import json
from collections.abc import Sequence
from typing import Any

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.digests import digest_of
from rl_core.isolation.pool import IsolatedPool
from rl_core.tools.messages import ToolRequest
from rl_core.tools.order import DescribingOrder
from rl_core.tools.tool import ToolSample
from rl_core.user_code.function import find_function

_KNOWN: dict[str, list[Any]] = {}


def described(written: Sequence[str], config: ToolsConfig, data: DataConfig) -> list[Any]:
    """For each function or class that the config names so: what it says, as JSON values. Raises ValueError where one
    cannot be imported, or lacks a type or the description of a parameter."""
    found = [find_function(one) for one in written]
    key = digest_of([[one.written, str(one.file), dict(one.code)] for one in found])
    if found and key not in _KNOWN:
        order = DescribingOrder.of(written, config, data)
        with IsolatedPool(order, processes=1, async_calls=1) as pool:
            request = ToolRequest(sample=ToolSample(()), arguments={}, seed=0, place=0)
            waiting = [pool.add(place, request) for place in range(len(found))]
            results = [one.result() for one in waiting]
        problems = [f"tools: {one.written}: {r.error}" for one, r in zip(found, results, strict=True) if r.error]
        if problems:
            raise ValueError("\n".join(problems))
        _KNOWN[key] = [json.loads(result.shown[0]) for result in results]
    return _KNOWN.get(key, [])
