"""One connection to an MCP server, owned by one task, used by any task of its event loop.

Says of each call how it ended: its result, or why nobody knows, or that it was not sent. Knows nothing of
agents or runs. The owner is a task of its own, so that a connection that breaks never breaks its user.
"""

import math
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import EventLoopToken, checkpoint, current_token

from ..capabilities.injected import ToolFailed, ToolUnknown
from .mcp_client import Stderr, judged, open_client
from .mcp_content import MAX_ERROR, error_of
from .mcp_servers import McpHttp, McpServer, McpStdio

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

# How long calls may take to end when the connection is closed under them.
_LAST_CALLS = 2.0


class Connection:
    """A connection to `server`, which messages call `name`; `run` is its life."""

    def __init__(self, name: str, server: McpServer, stderr: Stderr | None, connect_timeout: float) -> None:
        """Take what is needed to connect, within `connect_timeout` seconds."""
        self.name = name
        self.server = server
        self.where = str(server) if isinstance(server, McpStdio | McpHttp) else "in this process"
        self.connect_timeout = connect_timeout
        self.tools: tuple[Tool, ...] = ()
        self.failure: Exception | None = None  # why it never came to be
        self._client: Client | None = None
        self._lost: str | None = None  # why it is no more
        self._loop: EventLoopToken | None = None
        self._stderr = stderr
        self._stop = anyio.Event()
        self._calls: set[anyio.CancelScope] = set()
        self._idle: anyio.Event | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Connect, list the tools, and stay connected until `close`; raises nothing but cancellation.

        Started when `tools` is there, or `failure`: ConnectionError, TimeoutError, ValueError for a list that
        cannot be read, LookupError for a secret that is not set.
        """
        self._loop = current_token()
        # One scope around the whole life, as it may not end inside another; connected, it has no deadline.
        with anyio.CancelScope(deadline=anyio.current_time() + self.connect_timeout) as limit:
            try:
                await self._live(limit, task_status)
            except Exception as error:  # noqa: BLE001  # whatever a transport raises: it is told to all calls
                self._lost = f"the connection broke ({_reason(error)})"  # says more than that it ended
                self.failure = self._explained(error)
            finally:
                self._ended("the connection was closed")
                for scope in self._calls:
                    scope.cancel()
        if limit.cancelled_caught:
            self.failure = TimeoutError(
                f"MCP server {self.name!r} ({self.where}) was not ready within {self.connect_timeout} seconds"
                + self._last_words()
            )
        if self._client is None:
            task_status.started()

    async def _live(self, limit: anyio.CancelScope, task_status: TaskStatus[None]) -> None:
        async with open_client(self.server, self._stderr, self.connect_timeout, self._server_ended) as client:
            self.tools = await _list_tools(client, self.name)
            limit.deadline = math.inf
            self._client = client
            task_status.started()
            await self._stop.wait()
            if self._lost is None:
                await self._end_calls()

    def close(self) -> None:
        """End the connection; calls under way are cancelled and end as unknown."""
        self._stop.set()

    async def _end_calls(self) -> None:
        """Cancel the calls under way, and let them tell the server while there is a connection."""
        self._ended("the connection was closed")
        if not self._calls:
            return
        self._idle = anyio.Event()
        for scope in self._calls:
            scope.cancel()
        with anyio.move_on_after(_LAST_CALLS):
            await self._idle.wait()

    def _server_ended(self) -> None:
        self._ended("the server ended the connection")
        self._stop.set()

    def _ended(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason

    def _explained(self, error: Exception) -> Exception:
        inner = _only(error)
        if type(inner) is ValueError or type(inner) is LookupError:  # ours: the library raises heirs of them
            return inner
        made = ConnectionError(
            f"MCP server {self.name!r} ({self.where}) cannot be used: {_reason(error)}{self._last_words()}"
        )
        made.__cause__ = inner
        return made

    def _last_words(self) -> str:
        words = "" if self._stderr is None else self._stderr.last_words()
        return f"; its standard error ends with: {words}" if words else ""

    async def call(self, tool: str, arguments: dict[str, object]) -> "CallToolResult":
        """Call a tool of the server and return its result.

        Raises ToolFailed for what the server says has failed or was not run, and where the connection was lost
        before; ToolUnknown where it is lost under the call; what else the library raises as it is.
        """
        client = self._usable()
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                result = await client.call_tool(tool, arguments)
            except Exception as error:
                raise self._judged(error) from error
            finally:
                self._calls.discard(scope)
                if self._idle is not None and not self._calls:
                    self._idle.set()
            if result.is_error:
                raise ToolFailed(error_of(result))
            return result
        raise ToolUnknown(self._cut_off(self._lost or "the connection was closed"))

    def _usable(self) -> "Client":
        if self._client is None or self._lost is not None:
            raise ToolFailed(
                f"MCP server {self.name!r} cannot be reached any more: {self._lost}. This call was not sent."
            )
        if current_token() != self._loop:
            raise ToolFailed(
                f"MCP server {self.name!r} was connected in another event loop, which alone can use it: "
                "await agent.run(...) there. This call was not sent."
            )
        if self._stderr is not None:
            self._stderr.trim()
        return self._client

    def _judged(self, error: Exception) -> Exception:
        inner = _only(error)
        told = judged(inner)
        if told == "not run":
            return ToolFailed(
                str(inner)[:MAX_ERROR].strip() or "the server refused the call, and does not say why"
            )
        if told == "lost" or self._lost is not None:
            return ToolUnknown(self._cut_off(self._lost or str(inner)))
        return error

    def _cut_off(self, reason: str) -> str:
        return (
            f"MCP server {self.name!r} gave no result: {reason}. "
            "It is not known whether the call took effect."
        )


async def _list_tools(client: "Client", name: str) -> "tuple[Tool, ...]":
    """Return all tools, from all pages. The deadline around it bounds a list without end."""
    if client.server_capabilities.tools is None:
        raise ValueError(f"MCP server {name!r} offers no tools")
    found: list[Tool] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found)
        if cursor in seen:
            raise ValueError(
                f"MCP server {name!r} lists its tools in a circle: cursor {cursor!r:.80} came twice"
            )
        seen.add(cursor)
        await checkpoint()  # an in-process server may answer without ever waiting


def _only(error: BaseException) -> BaseException:
    """Return what task groups wrapped: the first of its kind, at the bottom."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: Exception) -> str:
    inner = _only(error)
    return f"{type(inner).__name__}: {inner}" if str(inner) else type(inner).__name__
