"""The tools of an MCP server are tools like any other: listed once, checked, covered, named, called."""

import sys
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server import Server

from capfold.capabilities import (
    Annotations,
    RequireApproval,
    SelectTools,
    Tool,
    ToolMessage,
    call,
    for_tools,
    is_destructive,
    tool,
)
from capfold.capabilities.tools import Toolkit
from capfold.runtime import Approve, Deny, Limits, Permissions, ScriptedModel, ToolError
from capfold.runtime.mcp import mcp_toolkit
from tests.runtime.desk import contents, make, results
from tests.runtime.mcp_desk import desk, paged, plain


def by_name(kit: Toolkit) -> dict[str, Tool]:
    """Return the tools of a toolkit by name."""
    return {tool.name: tool for tool in kit.tools if isinstance(tool, Tool)}


async def test_a_tool_is_what_the_server_lists() -> None:
    """Name, description, schema, hints, title and meta are the server's; what it does not declare is None."""
    async with mcp_toolkit(desk(), name="desk", timeout=5.0, max_retries=1) as kit:
        tools = by_name(kit)
    add, wipe = tools["add"], tools["wipe"]
    assert ("desk", "Add two integers.", 5.0, 1) == (kit.name, add.description, add.timeout, add.max_retries)
    assert {"a", "b"} == set(add.parameters["properties"])  # type: ignore[arg-type]  # it is an object
    assert Annotations(read_only=True, open_world=False) == add.annotations
    assert {"server": "desk", "tool": "add", "title": "Add up", "meta": {"desk/shelf": 3}} == add.metadata[
        "mcp"
    ]
    assert (Annotations(), True, False) == (wipe.annotations, is_destructive(wipe), is_destructive(add))


async def test_a_run_calls_the_server() -> None:
    """What the model asks for is what the server gets, and its answer is what the model reads."""
    async with mcp_toolkit(desk(), name="desk") as kit:
        result = await make([call("add", {"a": 1, "b": 2}), "3"], tools=[kit]).run("go")
    assert (["3"], "3") == (contents(result.messages), result.output)


async def test_bad_arguments_never_reach_the_server() -> None:
    """The server's schema is checked here; the server is not called, and the model is told why."""
    seen: list[dict[str, Any]] = []

    async def answer(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        seen.append(arguments)
        return types.CallToolResult(content=[types.TextContent(text="ok")])

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server = paged({None: ([plain("look", schema)], None)}, answer)
    async with mcp_toolkit(server, name="desk") as kit:
        calls = [call("look", {"n": "1"}), call("look", {"n": 1})]
        result = await make([*calls, "done"], tools=[kit]).run("go")
    assert [("look", "validation_error"), ("look", "succeeded")] == results(result.messages)
    assert [{"n": 1}] == seen


async def test_the_dialect_of_a_schema_is_honoured() -> None:
    """`items` of draft 7 as a list is checked as draft 7 has it, in which 2020-12 has no such thing."""
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": pair},
    }
    async with mcp_toolkit(paged({None: ([plain("put", schema)], None)}), name="desk") as kit:
        calls = [call("put", {"pair": [1, 2]}), call("put", {"pair": [1, "2"]})]
        result = await make([*calls, "done"], tools=[kit]).run("go")
    assert [("put", "validation_error"), ("put", "succeeded")] == results(result.messages)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"n": {"type": "no such type"}}},
        {"type": "object", "properties": {"n": {"$ref": "https://example.invalid/schema.json"}}},
        {"type": "object", "properties": {"n": {"pattern": "("}}},
    ],
)
async def test_a_schema_that_cannot_be_used_names_its_tool(schema: dict[str, Any]) -> None:
    """One bad tool is an error that says which, of which server, and how to go on without; and so it goes on."""
    server = paged({None: ([plain("good"), plain("bad", schema)], None)})
    with pytest.raises(
        ValueError, match=r"MCP server 'desk': tool 'bad' cannot be offered: .*exclude=\{'bad'\}"
    ):
        async with mcp_toolkit(server, name="desk"):
            pytest.fail("it connected")
    async with mcp_toolkit(server, name="desk", exclude={"bad"}) as kit:
        assert ["good"] == list(by_name(kit))


async def test_all_pages_are_read() -> None:
    """A list over many pages is one list, in order."""
    pages: dict[str | None, tuple[list[types.Tool], str | None]] = {
        (str(i) if i else None): ([plain(f"tool_{i}")], str(i + 1) if i < 49 else None) for i in range(50)
    }
    async with mcp_toolkit(paged(pages), name="desk") as kit:
        assert [f"tool_{i}" for i in range(50)] == list(by_name(kit))


async def test_a_list_in_a_circle_is_an_error() -> None:
    """A cursor that comes again would be read for ever."""
    pages: dict[str | None, tuple[list[types.Tool], str | None]] = {
        None: ([plain("a")], "1"),
        "1": ([plain("b")], "1"),
    }
    with pytest.raises(
        ValueError, match=r"MCP server 'desk' lists its tools in a circle: cursor '1' came twice"
    ):
        async with mcp_toolkit(paged(pages), name="desk"):
            pytest.fail("it connected")


async def test_a_list_without_end_is_bounded_by_the_time_to_connect() -> None:
    """New cursors for ever end with the deadline, although an in-process server never waits."""

    async def listed(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        cursor = int(params.cursor or 0) if params is not None else 0
        return types.ListToolsResult(tools=[], next_cursor=str(cursor + 1))

    with pytest.raises(
        TimeoutError, match=r"MCP server 'desk' \(in this process\) was not ready within 0\.2 seconds"
    ):
        async with mcp_toolkit(Server("endless", on_list_tools=listed), name="desk", connect_timeout=0.2):
            pytest.fail("it connected")


async def test_names_can_be_chosen_and_told_apart() -> None:
    """Two servers with the same tools stand side by side; the server still gets its own names."""
    async with (
        mcp_toolkit(desk(), name="left", include={"add"}, prefix="left_") as left,
        mcp_toolkit(desk(), name="right", include={"add", "wipe"}, rename={"add": "sum"}) as right,
    ):
        assert (["left_add"], ["sum", "wipe"]) == (list(by_name(left)), list(by_name(right)))
        calls = [call("left_add", {"a": 1, "b": 1}), call("sum", {"a": 2, "b": 2})]
        result = await make([calls, "done"], tools=[left, right]).run("go")
    assert ["2", "4"] == contents(result.messages)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"include": {"ad"}}, "MCP server 'desk': no tool is named 'ad'; did you mean 'add'"),
        ({"exclude": {"ad"}}, "MCP server 'desk': no tool is named 'ad'; did you mean 'add'"),
        ({"rename": {"ad": "x"}}, "MCP server 'desk': no tool is named 'ad'; did you mean 'add'"),
        ({"rename": {"add": "wipe"}}, "two tools are named 'wipe' .'add' and 'wipe'.: rename or exclude"),
    ],
)
async def test_a_name_that_leads_nowhere_is_an_error(options: dict[str, Any], message: str) -> None:
    """A tool that nobody has cannot be left out by mistake, and none can hide another."""
    with pytest.raises(ValueError, match=message):
        async with mcp_toolkit(desk(), name="desk", **options):
            pytest.fail("it connected")


async def test_what_is_no_server_is_told() -> None:
    """A string would be neither command nor address."""
    with pytest.raises(TypeError, match=r"McpStdio\(command, args\), McpHttp\(url\) or a server object"):
        async with mcp_toolkit("npx some-server", name="desk"):  # type: ignore[arg-type]  # what is tested
            pytest.fail("it connected")
    with pytest.raises(TypeError, match="include='add' is one string"):
        async with mcp_toolkit(desk(), name="desk", include="add"):
            pytest.fail("it connected")


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not installed the extra is told how to get it."""
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(ImportError, match=r"need the extra `mcp`: pip install 'capfold\[mcp\]'"):
        async with mcp_toolkit(desk(), name="desk"):
            pytest.fail("it connected")


async def test_what_the_body_raises_comes_out_as_it_is() -> None:
    """The context's own tasks do not make groups of the exceptions of its body."""
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with mcp_toolkit(desk(), name="desk"):
            raise error
    assert error is caught.value


async def test_a_failing_tool_is_failed_with_its_text() -> None:
    """What the server calls an error is a known failure, and the run goes on."""
    async with mcp_toolkit(desk(), name="desk") as kit:
        result = await make([call("fail", {"text": "no paper"}), "done"], tools=[kit]).run("go")
    ((name, status),), (content,) = results(result.messages), contents(result.messages)
    assert ("fail", "failed", "done") == (name, status, result.output)
    assert "no paper" in str(content)


async def test_failures_in_a_row_end_the_run_as_those_of_any_tool() -> None:
    """`max_retries` counts."""
    async with mcp_toolkit(desk(), name="desk", max_retries=0) as kit:
        with pytest.raises(ToolError):
            await make([call("fail", {"text": "no"}), "done"], tools=[kit]).run("go")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MCPError(types.INVALID_PARAMS, "no such thing"), "failed"),
        (MCPError(types.METHOD_NOT_FOUND, "no such method"), "failed"),
        (MCPError(types.INTERNAL_ERROR, "it broke"), "unknown"),
        (MCPError(types.INVALID_REQUEST, "what?"), "unknown"),
        (MCPError(types.REQUEST_TIMEOUT, "too slow"), "unknown"),
    ],
)
async def test_what_an_error_of_the_protocol_says_about_the_effect(error: MCPError, status: str) -> None:
    """Refused before it ran: failed; anything else leaves open what happened."""

    async def answer(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        raise error

    async with mcp_toolkit(paged({None: ([plain("look")], None)}, answer), name="desk") as kit:
        result = await make([call("look"), "done"], tools=[kit]).run("go")
    assert [("look", status)] == results(result.messages)
    assert error.message in str(contents(result.messages)[0])


async def test_a_result_over_the_limit_is_unknown() -> None:
    """The limit on results is that of any tool."""
    async with mcp_toolkit(desk(), name="desk", include={"huge"}) as kit:
        calls = [call("huge", {"size": 2000}), call("huge", {"size": 10})]
        agent = make([*calls, "done"], tools=[kit], limits=Limits(max_result_bytes=1000))
        result = await agent.run("go")
    assert [("huge", "unknown"), ("huge", "succeeded")] == results(result.messages)
    assert "the limit is 1000" in str(contents(result.messages)[0])


async def test_approval_and_permissions_cover_the_tools() -> None:
    """What the hints call destructive is asked for, what a rule denies is denied; the server sees neither."""

    def person(requests: Any) -> list[Deny]:
        return [Deny(f"not {request.tool}") for request in requests]

    rules = Permissions((("add", "deny"),))
    calls = [call("wipe", {"path": "/"}), call("add", {"a": 1, "b": 2}), call("pid")]
    async with mcp_toolkit(desk(), name="desk", exclude={"fail"}) as kit:
        approval = RequireApproval({"wipe"})
        agent = make(
            [calls, "done"], tools=[kit], capabilities=[approval], permissions=rules, approver=person
        )
        result = await agent.run("go")
    assert [("wipe", "denied"), ("add", "denied"), ("pid", "succeeded")] == results(result.messages)
    assert "not wipe" == contents(result.messages)[0]


async def test_capabilities_of_the_toolkit_cover_its_tools_alone() -> None:
    """A capability given to the toolkit stands around its tools, and around no other."""

    @tool
    def own(path: str) -> str:
        """Do something here."""
        return "done"

    async with mcp_toolkit(desk(), name="desk", capabilities=[RequireApproval(is_destructive)]) as kit:
        calls = [call("wipe", {"path": "/"}), call("add", {"a": 1, "b": 2}), call("own", {"path": "/"})]
        result = await make([calls, "done"], tools=[kit, own]).run("go")
    assert ("suspended", ["wipe"]) == (result.status, [request.tool for request in result.pending])


async def test_a_suspended_call_is_resumed_over_another_connection() -> None:
    """A snapshot holds the call, not the connection: another toolkit of the same server takes it up."""
    async with mcp_toolkit(desk(), name="desk", capabilities=[RequireApproval(is_destructive)]) as kit:
        suspended = await make([call("wipe", {"path": "/"})], tools=[kit]).run("go")
    (request,) = suspended.pending
    async with mcp_toolkit(desk(), name="desk", capabilities=[RequireApproval(is_destructive)]) as kit:
        agent = make(["done"], tools=[kit])
        result = await agent.resume(suspended.snapshot(), {request.digest: Approve()})
    assert (["wiped /"], "done") == (contents(result.messages), result.output)


async def test_selection_and_scopes_see_the_hints() -> None:
    """`for_tools` and selection go by the server's annotations as by any tool's."""
    model = ScriptedModel([call("wipe", {"path": "/"}), "done"])
    async with mcp_toolkit(desk(), name="desk") as kit:
        agent = make(
            model=model,
            tools=[kit],
            capabilities=[
                SelectTools({"wipe", "add"}),
                for_tools(is_destructive, RequireApproval(lambda tool: True)),
            ],
            approver=lambda requests: [Deny("no") for _ in requests],
        )
        result = await agent.run("go")
    assert [["add", "wipe"]] * 2 == [[tool.name for tool in request.tools] for request in model.requests]
    assert [("wipe", "denied")] == results(result.messages)


async def test_a_call_after_the_context_fails_and_was_not_sent() -> None:
    """A toolkit whose connection is closed says so, at once."""
    async with mcp_toolkit(desk(), name="desk") as kit:
        pass
    result = await make([call("add", {"a": 1, "b": 2}), "done"], tools=[kit]).run("go")
    assert [("add", "failed")] == results(result.messages)
    assert [
        "MCP server 'desk' cannot be reached any more: the connection was closed. This call was not sent."
    ] == (contents(result.messages))


async def test_another_event_loop_cannot_use_the_connection() -> None:
    """A toolkit in `run_sync` of another thread is told so, instead of hanging."""
    async with mcp_toolkit(desk(), name="desk") as kit:
        agent = make([call("add", {"a": 1, "b": 2}), "done"], tools=[kit])
        result = await anyio.to_thread.run_sync(agent.run_sync, "go")
    assert [("add", "failed")] == results(result.messages)
    (message,) = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert "connected in another event loop" in str(message.content)
