"""`mcp_toolkit`: the tools of an MCP server as a `Toolkit`, for as long as the connection stands.

Makes tools of what a server lists, and nothing else: capabilities and permissions cover them like any tool.
Knows nothing of how a server is reached.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from ..capabilities.annotations import Annotations, SchemaCall
from ..capabilities.injected import ToolContext
from ..capabilities.messages import Content
from ..capabilities.tool_record import Scoped
from ..capabilities.tools import Tool, Toolkit, check_names
from .mcp_client import check_server, open_stderr
from .mcp_connection import Connection
from .mcp_content import content_of
from .mcp_servers import McpServer

if TYPE_CHECKING:
    import mcp_types


@asynccontextmanager
async def mcp_toolkit(
    server: McpServer,
    *,
    name: str,
    capabilities: Iterable[Scoped] = (),
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  # of each tool, not of this function
    max_retries: int = 3,
    sequential: bool = False,
    connect_timeout: float = 30.0,
) -> AsyncIterator[Toolkit]:
    """Connect to an MCP server and yield its tools; on exit the connection is closed, its process ended.

    `server` is a `McpStdio`, a `McpHttp` or a server object of `mcp.server`. `include` and `exclude` hold the
    server's names of tools; a tool is called by `prefix` and that name, or by what `rename` says for it.
    `timeout`, `max_retries` and `sequential` are those of each `Tool`; `connect_timeout` in seconds bounds
    connecting and listing. The list is the one at that time: tools that the server adds later are not in it.

    A call fails (`failed`) when the server says so, or before it is sent; it is `unknown` when its timeout ends
    or the connection is lost under it. A lost connection stays lost: enter the context again.
    The annotations are the server's own word: trust them as far as the server.

    Raises ImportError without the extra `mcp`; ConnectionError or TimeoutError when there is no connection;
    LookupError for a secret that is not set; OSError for a `stderr` that cannot be written; ValueError for a
    tool that cannot be one of ours, naming it, for a name in `include`, `exclude` or `rename` that no tool has,
    and for two tools of one name.
    """
    check_server(server)
    failure: Exception | None = None
    with open_stderr(server) as stderr:
        connection = Connection(name, server, stderr, connect_timeout)
        async with anyio.create_task_group() as tasks:
            await tasks.start(connection.run)
            try:
                if connection.failure is not None:
                    raise connection.failure
                tools = [
                    _tool(connection, found, called, timeout, max_retries, sequential=sequential)
                    for found, called in _chosen(connection, include, exclude, prefix, rename or {})
                ]
                yield Toolkit(name, tools, capabilities=capabilities)
            except Exception as error:  # noqa: BLE001  # raised below: the task group would make it a group
                failure = error
            finally:
                connection.close()
    if failure is not None:
        raise failure


def _chosen(
    connection: Connection,
    include: Collection[str] | None,
    exclude: Collection[str],
    prefix: str,
    rename: Mapping[str, str],
) -> "list[tuple[mcp_types.Tool, str]]":
    """Return the tools that are wanted, each with the name it gets."""
    for what, names in (("include", include), ("exclude", exclude)):
        if isinstance(names, str):
            raise TypeError(f"{what}={names!r} is one string; write a set of names, {{{names!r}}}")
    there = [tool.name for tool in connection.tools]
    try:
        check_names((*(include or ()), *exclude, *rename), there)
    except ValueError as error:
        raise ValueError(f"MCP server {connection.name!r}: {error}") from None
    chosen: dict[str, tuple[mcp_types.Tool, str]] = {}
    for tool in connection.tools:
        if tool.name in exclude or (include is not None and tool.name not in include):
            continue
        called = rename.get(tool.name, prefix + tool.name)
        if called in chosen:
            other = chosen[called][0].name
            raise ValueError(
                f"MCP server {connection.name!r}: two tools are named {called!r} ({other!r} and {tool.name!r}): "
                "rename or exclude one of them"
            )
        chosen[called] = (tool, called)
    return list(chosen.values())


def _tool(
    connection: Connection,
    found: "mcp_types.Tool",
    called: str,
    timeout: float | None,
    max_retries: int,
    *,
    sequential: bool,
) -> Tool:
    try:
        return Tool.from_schema(
            called,
            found.description or found.title or "",
            found.input_schema,
            _call(connection, found.name),
            annotations=_annotations(found.annotations),
            timeout=timeout,
            max_retries=max_retries,
            sequential=sequential,
            metadata={"mcp": _metadata(connection.name, found)},
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"MCP server {connection.name!r}: tool {found.name!r} cannot be offered: {error}; "
            f"exclude={{{found.name!r}}} leaves it out"
        ) from error


def _call(connection: Connection, name: str) -> SchemaCall:
    async def call(arguments: dict[str, object], context: ToolContext) -> Content:
        return content_of(await connection.call(name, arguments))

    return call


def _annotations(hints: "mcp_types.ToolAnnotations | None") -> Annotations:
    if hints is None:
        return Annotations()
    return Annotations(
        read_only=hints.read_only_hint,
        destructive=hints.destructive_hint,
        idempotent=hints.idempotent_hint,
        open_world=hints.open_world_hint,
    )


def _metadata(server: str, found: "mcp_types.Tool") -> dict[str, object]:
    title = found.title or (found.annotations.title if found.annotations is not None else None)
    kept: dict[str, object] = {"server": server, "tool": found.name}
    if title:
        kept["title"] = title
    if found.meta:
        kept["meta"] = found.meta
    return kept
