"""The section `tools` knows what is wrong with it."""

from typing import Any

import pytest

from rl_core.config.tools import ToolsConfig

THERE = {"url": "http://127.0.0.1:9/mcp"}
OURS = {"command": ["server"]}


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({}, ["use"]),
        ({"use": ["calculater"]}, ["use"]),
        ({"use": ["zoom"], "max_images": 0}, ["max_images"]),
        ({"mcp": {"one": {}}}, ["mcp.one.command"]),
        ({"mcp": {"one": THERE | OURS}}, ["mcp.one.command"]),
        ({"mcp": {"one": THERE | {"variables": ["KEY"]}}}, ["mcp.one.variables"]),
        ({"mcp": {"one": OURS | {"headers": {"Authorization": "KEY"}}}}, ["mcp.one.headers"]),
        ({"mcp": {"one": THERE | {"headers": {"Authorization": "NOT_SET"}}}}, ["mcp.one.headers"]),
        ({"mcp": {"one": OURS | {"variables": ["NOT_SET"]}}}, ["mcp.one.variables"]),
        ({"mcp": {"one": THERE | {"headers": {"Authorization": "KEY"}}, "two": OURS | {"variables": ["KEY"]}}}, []),
    ],
)
def test_every_problem_has_its_key(section: dict[str, Any], where: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")
    monkeypatch.delenv("NOT_SET", raising=False)
    config = ToolsConfig.model_validate(section)
    found = [*config.problems()]
    found += [one.below(f"mcp.{name}") for name, server in config.mcp.items() for one in server.problems()]
    assert [one.where for one in found] == where
    assert not any("secret" in str(one) for one in found)
