"""An MCP server for the tests: `python served.py stdio`, or `python served.py streamable-http PORT`."""

import io
import os
import sys
import time

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from PIL import Image as Pictures

server = MCPServer("served", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def spell(word: str) -> str:
    """Spell a word that is known."""
    if word != "cat":
        raise ToolError(f"{word} is not known")
    return "c a t"


@server.tool()
def draw(size: int) -> list[str | Image]:
    """A red square."""
    encoded = io.BytesIO()
    Pictures.new("RGB", (size, size), (255, 0, 0)).save(encoded, "PNG")
    return ["red", Image(data=encoded.getvalue(), format="png")]


@server.tool()
def wait(seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return "waited"


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def variable(key: str) -> str:
    """An environment variable."""
    return os.environ.get(key, "none")


@server.tool()
def header(key: str, context: Context) -> str:
    """A header of the request."""
    return (context.headers or {}).get(key, "none")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
