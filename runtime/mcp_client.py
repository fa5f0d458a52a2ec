"""From where an MCP server is to an open client of it; the only file that knows the protocol's library.

Knows nothing of tools or runs. The library is imported when a client is opened: that costs a second.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

import anyio
from attrs import frozen

from .mcp_servers import McpHttp, McpServer, McpStdio, revealed

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams  # what its public Transport yields has no public name
    from mcp.shared.message import SessionMessage

    Received: TypeAlias = SessionMessage | Exception

# A server may write on its standard error all day; beyond this much, what is only kept for a failed start goes.
_MAX_KEPT = 1 << 20
_LAST_WORDS = 2_000


def check_server(server: McpServer) -> None:
    """Raise ImportError naming the extra without the library, TypeError for what is no server."""
    try:
        from mcp.server import MCPServer, Server  # noqa: PLC0415  # costly, and an extra
    except ImportError as error:
        raise ImportError(
            f"MCP servers need the extra `mcp`: pip install 'capfold[mcp]' ({error})", name=error.name
        ) from error
    if not isinstance(server, McpStdio | McpHttp | MCPServer | Server):
        raise TypeError(
            "an MCP server is McpStdio(command, args), McpHttp(url) or a server object of mcp.server, "
            f"not {server!r:.80}"
        )


@frozen
class Stderr:
    """The file that a server's standard error goes to, and where it is."""

    file: TextIO
    path: Path
    kept: bool  # for the user, who gave it

    def trim(self) -> None:
        """Empty the file when it has grown large and nobody asked for it."""
        if not self.kept and os.fstat(self.file.fileno()).st_size > _MAX_KEPT:
            self.file.truncate(0)

    def last_words(self) -> str:
        """Return the end of what the server wrote."""
        with self.path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS))
            return file.read().decode("utf-8", "replace").strip()


@contextmanager
def open_stderr(server: McpServer) -> Iterator[Stderr | None]:
    """Open the file for a server's standard error, None for a server that is no process of ours."""
    if not isinstance(server, McpStdio):
        yield None
    elif server.stderr is not None:
        with server.stderr.open("a+", encoding="utf-8") as file:
            yield Stderr(file, server.stderr, kept=True)
    else:
        # By its name, since only a file opened for appending stays right when it is emptied under its writer.
        with tempfile.TemporaryDirectory(prefix="capfold-mcp-") as folder:
            path = Path(folder, "stderr")
            with path.open("a+", encoding="utf-8") as file:
                yield Stderr(file, path, kept=False)


@asynccontextmanager
async def _watched(
    transport: "AbstractAsyncContextManager[TransportStreams]", ended: Callable[[], None]
) -> "AsyncIterator[TransportStreams]":
    """Tell by `ended` when nothing comes from the server any more, before those who wait for an answer know.

    The client keeps to itself that its connection is closed, and one that broke is closed before it raises.
    """
    async with transport as (read, write):
        send, receive = anyio.create_memory_object_stream["Received"](0)

        async def pump() -> None:
            with send:
                try:
                    async for item in read:
                        await send.send(item)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # closed on this side
                finally:
                    ended()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump)
            try:
                yield receive, write
            finally:
                receive.close()
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_client(
    server: McpServer, stderr: Stderr | None, connect_timeout: float, ended: Callable[[], None]
) -> "AsyncIterator[Client]":
    """Connect to a server and yield a client that offers it neither sampling nor elicitation.

    `ended` is called when the connection ends; a broken one also raises, any exception or group. On exit the
    server's process is ended. Raises LookupError for a secret that is not set.
    """
    from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415  # costly, and an extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  # as above
    from mcp.server import MCPServer, Server  # noqa: PLC0415  # as above

    async with AsyncExitStack() as stack:
        if isinstance(server, McpStdio):
            assert stderr is not None
            command = StdioServerParameters(
                command=server.command, args=list(server.args), env=revealed(server.env), cwd=server.cwd
            )
            client = Client(_watched(stdio_client(command, stderr.file), ended), cache=None)
        elif isinstance(server, McpHttp):
            import httpx2  # noqa: PLC0415  # as above

            # A tool may take its time to answer: that is for the tool's own timeout to bound.
            limits = httpx2.Timeout(connect_timeout, read=None)
            http = httpx2.AsyncClient(headers=revealed(server.headers), timeout=limits)
            await stack.enter_async_context(http)
            client = Client(_watched(streamable_http_client(server.url, http_client=http), ended), cache=None)
        else:
            assert isinstance(server, MCPServer | Server)
            client = Client(server, cache=None)
        yield await stack.enter_async_context(client)


def judged(error: BaseException) -> Literal["not run", "lost", "open"]:
    """Tell what an exception says of its request: not run by the server's own word, lost on the way, or neither.

    Not run is only what a server alone says; "invalid request" the library also makes of an unreadable answer.
    """
    import mcp_types as types  # noqa: PLC0415  # costly, and an extra
    from mcp import MCPError  # noqa: PLC0415  # as above

    if not isinstance(error, MCPError):
        return "open"
    if error.code in {types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT}:
        return "lost"
    not_run = {
        types.HEADER_MISMATCH,
        types.INVALID_PARAMS,
        types.METHOD_NOT_FOUND,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.URL_ELICITATION_REQUIRED,
    }
    return "not run" if error.code in not_run else "open"
