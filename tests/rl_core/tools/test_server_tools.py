"""The tools of an MCP server, in their real processes."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.tools.messages import ToolRequest, ToolResult
from rl_core.tools.tool import ToolSample
from rl_core.tools.toolbox import tool_schemas

SERVER = [sys.executable, str(Path(__file__).with_name("served.py")), "stdio"]
DATA = DataConfig.model_validate(
    {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
    | {"min_pixels": 784, "max_pixels": 3136}
)


def config_of(**server: Any) -> ToolsConfig:
    return ToolsConfig.model_validate(
        {"mcp": {"served": {"command": SERVER} | server}, "timeout_seconds": 4.0, "load_timeout_seconds": 60.0}
    )


class Asked:
    def __init__(self, tools: IsolatedTools, events: list[dict[str, Any]]) -> None:
        self.tools, self.events, self.calls = tools, events, 0

    def __call__(self, name: str, **arguments: Any) -> ToolResult:
        self.calls += 1
        request = ToolRequest(sample=ToolSample(()), arguments=arguments, seed=1, place=self.calls)
        return self.tools.call(name, request, version=0).result()


def asked_of(home: Path, config: ToolsConfig) -> Iterator[Asked]:
    events: list[dict[str, Any]] = []
    journal = Journal(home / "calls", needed_from=lambda: 0)
    with IsolatedTools(
        config,
        DATA,
        image_store=home / "images",
        journal=journal,
        log_event=lambda kind, **facts: events.append({"kind": kind} | facts),
    ) as tools:
        yield Asked(tools, events)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVED_KEY", "key")
        patch.setenv("SERVED_OTHER", "other")
        yield from asked_of(tmp_path_factory.mktemp("served"), config_of(variables=["SERVED_KEY"]))


def test_texts_and_images_are_shown(asked: Asked) -> None:
    assert asked("add", a=1, b=2) == ToolResult(["3"], None, None)
    text, image = asked("draw", size=500).shown
    assert text == "red"
    assert isinstance(image, bytes) and image.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [("spell", {"word": "dog"}, "dog is not known"), ("add", {"a": "x"}, "integer"), ("add", {"a": 1}, "b")],
)
def test_what_the_server_refuses_is_the_models_mistake(
    asked: Asked, name: str, arguments: dict[str, Any], shown: str
) -> None:
    result = asked(name, **arguments)
    assert result.error is None
    assert result.mistake is not None and shown in result.mistake


def test_a_server_gets_the_named_variables_alone(asked: Asked) -> None:
    assert asked("variable", key="SERVED_KEY").shown == ["key"]
    assert asked("variable", key="SERVED_OTHER").shown == ["none"]


def test_a_call_that_takes_too_long_fails_and_the_session_goes_on(asked: Asked) -> None:
    asked("add", a=1, b=1)  # the first call may take longer
    failed = asked("wait", seconds=6.0)
    assert failed.error is not None and "timeout_seconds = 4" in failed.error
    assert asked("add", a=1, b=1).shown == ["2"]


def test_a_server_that_ends_fails_its_call_and_is_started_again(asked: Asked) -> None:
    failed = asked("die")
    assert failed.error is not None and "closed" in failed.error.lower()
    assert asked.events[-1]["kind"] == "tool_failed"
    assert any(asked("add", a=2, b=2).shown == ["4"] for _ in range(9)), "its start may take longer than a call may"


def test_the_model_is_told_of_the_chosen_tools() -> None:
    (add,) = tool_schemas(config_of(tools=["add"]), DATA)
    assert add["function"]["description"] == "Add two numbers."
    assert set(add["function"]["parameters"]["properties"]) == {"a", "b"}
    with pytest.raises(ValueError, match=r"mcp\.served.*no tool other.*add, spell"):
        tool_schemas(config_of(tools=["other"]), DATA)


@pytest.mark.parametrize(
    "server", [{"command": ["no-such-program"]}, {"command": [sys.executable, "-c", "raise SystemExit(3)"]}]
)
def test_a_server_that_does_not_start_is_named(server: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tools: mcp\.served: "):
        tool_schemas(config_of(**server), DATA)


@pytest.mark.slow  # starts three servers
def test_a_server_that_is_there_is_called_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*SERVER[:-1], "streamable-http", str(port)]
    server = subprocess.Popen(command)
    try:
        wait_for(port)
        monkeypatch.setenv("SERVED_TOKEN", "Bearer one")
        config = config_of(command=[], url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "SERVED_TOKEN"})
        for asked in asked_of(tmp_path, config):
            assert asked("add", a=1, b=2).shown == ["3"]
            assert asked("header", key="authorization").shown == ["Bearer one"]
            server.kill()
            server.wait()
            assert asked("add", a=1, b=2).error is not None
            server = subprocess.Popen(command)
            wait_for(port)
            asked("add", a=1, b=2)  # may find the old session lost
            assert asked("add", a=1, b=2).shown == ["3"]
    finally:
        server.kill()
        server.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
