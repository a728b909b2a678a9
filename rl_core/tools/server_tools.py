"""A server of the Model Context Protocol in the process that calls it: one session, through which all calls go."""

import asyncio
import io
import os
from base64 import b64decode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from httpx2 import AsyncClient
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from PIL import Image

from rl_core.config.tools import McpServer
from rl_core.tools.tool import ToolSample


class _Connection(NamedTuple):
    """The task that holds a session open, and the client as soon as there is one."""

    holder: "asyncio.Task[None]"
    client: "asyncio.Future[Client]"


class ServerTools:
    """The tools of a server, in the loop of the process. A session that was lost is opened again by the next call."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._connection: _Connection | None = None

    async def listed(self) -> list[dict[str, Any]]:
        """What a chat template shows the model of the chosen tools, in the server's order. Raises ValueError where the
        server has not all of them."""
        client, found, cursor = await self._client(), [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        names = [tool.name for tool in found]
        if missing := [name for name in self._server.tools if name not in names]:
            raise ValueError(f"the server has no tool {', '.join(missing)}; it has {', '.join(names)}")
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                },
            }
            for tool in found
            if tool.name in (self._server.tools or names)
        ]

    async def __call__(self, sample: ToolSample, arguments: Mapping[str, Any]) -> list[object]:
        """What a tool shows: `arguments` has its name, and below this its own arguments. Raises ValueError, with what
        the server says, where the call was wrong, as far as servers tell this apart; and MCPError where there is no
        answer."""
        ((name, given),) = arguments.items()
        client = await self._client()
        try:
            result = await client.call_tool(name, given)
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                raise ValueError(error.message) from None
            if error.code == CONNECTION_CLOSED:
                self._leave(client)
            raise
        parts = [_part(content) for content in result.content]
        if result.is_error:
            raise ValueError(" ".join(part for part in parts if isinstance(part, str)) or "the call failed")
        return parts

    async def _client(self) -> Client:
        if self._connection is None or self._connection.holder.done():
            client = asyncio.get_running_loop().create_future()
            self._connection = _Connection(asyncio.create_task(self._hold(client)), client)
        connection = self._connection
        await asyncio.wait(connection, return_when=asyncio.FIRST_COMPLETED)
        if not connection.client.done():
            connection.holder.result()  # raises why there is no session
        return connection.client.result()

    async def _hold(self, opened: "asyncio.Future[Client]") -> None:
        """A session is closed by the task that has opened it."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(await _place(self._server, stack)))
            opened.set_result(client)
            await asyncio.Event().wait()

    def _leave(self, client: Client) -> None:
        """A session of calls that came together is left by the first that finds it lost."""
        connection = self._connection
        if connection is not None and connection.client.done() and connection.client.result() is client:
            connection.holder.cancel()
            self._connection = None


async def _place(server: McpServer, stack: AsyncExitStack) -> StdioServerParameters | Transport:
    if server.url is not None:
        headers = {name: os.environ[variable] for name, variable in server.headers.items()}
        # A call ends at the time limit of tools, and not when a connection has been silent for a while.
        http = await stack.enter_async_context(AsyncClient(headers=headers, timeout=None))
        return streamable_http_client(server.url, http_client=http)
    command, *arguments = server.command
    given = {name: os.environ[name] for name in server.variables}
    return StdioServerParameters(command=command, args=arguments, env=given)


def _part(content: object) -> object:
    """A text, an image, or what no tool may show."""
    match content:
        case TextContent(text=text):
            return text
        case ImageContent(data=data):
            with Image.open(io.BytesIO(b64decode(data))) as image:
                return image.convert("RGB")
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
    return content
