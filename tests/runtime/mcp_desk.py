"""An MCP server for the tests, in this process or as one of its own: `python mcp_desk.py [stdio | http]`.

As a process it knows nothing of capfold. What it does in the middle of a call it shows by files, which the
test names: a call that waits makes `began`, and `ended` when it is cancelled.
"""

import base64
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import MCPServer, Server
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = b"\x89PNG\r\n\x1a\n and so on"
SOUND = b"RIFF and so on"
LOOKS = types.ToolAnnotations(title="Add up", read_only_hint=True, open_world_hint=False)
SAFE = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _touch(path: str) -> None:
    Path(path).touch()


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def wipe(path: str) -> str:
    """Wipe a path; says nothing about itself."""
    return f"wiped {path}"


def fail(text: str) -> str:
    """Fail with a text."""
    raise ToolError(text)


def pid() -> str:
    """Return the id of the process."""
    return str(os.getpid())


def huge(size: int) -> str:
    """Return so many letters."""
    return "x" * size


async def wait(began: str, ended: str) -> str:
    """Wait for ever, and show when that begins and ends."""
    _touch(began)
    try:
        await anyio.sleep_forever()
    finally:
        _touch(ended)
    raise AssertionError("forever is over")


def everything() -> list[types.ContentBlock]:
    """Return one block of each kind."""
    blob = types.BlobResourceContents(uri="desk://blob", mime_type="application/pdf", blob=_base64(b"%PDF"))
    text = types.TextResourceContents(uri="desk://text", mime_type="text/plain", text="read me")
    return [
        types.TextContent(text="a text"),
        types.ImageContent(data=_base64(PIXEL), mime_type="image/png"),
        types.AudioContent(data=_base64(SOUND), mime_type="audio/wav"),
        types.ResourceLink(name="a link", uri="desk://link", mime_type="text/plain"),
        types.EmbeddedResource(resource=text),
        types.EmbeddedResource(resource=blob),
    ]


def lists() -> list[str]:
    """Return two words, which the library writes as two texts and as structured content."""
    return ["one", "two"]


def desk() -> MCPServer:
    """Return a new server of all the tools above."""
    server = MCPServer("desk")
    server.tool(annotations=LOOKS, meta={"desk/shelf": 3})(add)
    for function in (wipe, fail, pid, huge, lists):
        server.tool()(function)
    server.tool(annotations=SAFE)(wait)
    server.tool(structured_output=False)(everything)
    return server


Page = tuple[list[types.Tool], str | None]
Answer = Callable[
    [str, dict[str, Any]], Awaitable[types.CallToolResult]
]  # Any: arguments are JSON of any shape


async def _nothing(name: str, arguments: dict[str, Any]) -> types.CallToolResult:  # Any: as above
    return types.CallToolResult(content=[])


def paged(pages: dict[str | None, Page], answer: Answer = _nothing) -> Server[Any]:  # Any: it has no lifespan
    """Return a server that lists these pages, by cursor, and answers calls as told."""

    async def listed(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools, after = pages[params.cursor if params is not None else None]
        return types.ListToolsResult(tools=tools, next_cursor=after)

    async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await answer(params.name, params.arguments or {})

    return Server("paged", on_list_tools=listed, on_call_tool=called)


def plain(name: str, schema: dict[str, Any] | None = None) -> types.Tool:  # Any: JSON Schema of any shape
    """Return what a server lists of a tool."""
    return types.Tool(name=name, input_schema=schema or {"type": "object"})


def _serve_http() -> None:
    import uvicorn  # noqa: PLC0415  # half a second that a server on standard streams need not pay

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)  # noqa: T201  # the test waits for it
    app = desk().streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    _serve_http() if sys.argv[1] == "http" else desk().run("stdio")
