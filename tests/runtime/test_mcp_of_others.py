"""Three MCP servers that others wrote, as processes: one in Python, two on node, each with its own habits.

The two on node need what `make test` puts below .tools; they are skipped only where node is missing.
"""

import shutil
import sys
from pathlib import Path

import pytest

from capfold.capabilities import (
    AudioPart,
    ImagePart,
    RequireApproval,
    TextPart,
    Tool,
    call,
    is_declared_destructive,
    is_destructive,
    is_idempotent,
    is_read_only,
)
from capfold.runtime import Approve, Deny, Permissions
from capfold.runtime.mcp import mcp_toolkit
from capfold.runtime.mcp_servers import McpStdio
from tests.runtime.desk import contents, make, results

TOOLS = Path(__file__).parents[2] / ".tools/node_modules/@modelcontextprotocol"
PNG = b"\x89PNG\r\n\x1a\n"


def on_node(package: str, *args: str) -> McpStdio:
    """Return the server of an npm package."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing, and these servers run on it")
    script = TOOLS / package / "dist/index.js"
    if not script.is_file():
        pytest.fail(f"{script} is missing: `make tools` installs it")
    return McpStdio(node, [str(script), *args])


async def test_time_server() -> None:
    """All four hints are declared; its structured results come once; its errors are failures with its text."""
    server = McpStdio(sys.executable, ["-m", "mcp_server_time", "--local-timezone", "UTC"])
    noon = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}
    async with mcp_toolkit(server, name="time") as kit:
        assert ["get_current_time", "convert_time"] == [tool.name for tool in kit.tools]
        assert [(True, False)] * 2 == [
            (is_idempotent(tool), is_destructive(tool)) for tool in kit.tools if isinstance(tool, Tool)
        ]
        calls = [
            call("convert_time", noon),
            call("convert_time", {**noon, "time": "25:00"}),
            call("convert_time"),
        ]
        result = await make([calls, "done"], tools=[kit]).run("go")
    assert ["succeeded", "failed", "validation_error"] == [status for _, status in results(result.messages)]
    converted, failed, _ = contents(result.messages)
    assert '"time_difference": "-9.0h"' in str(converted)
    assert 1 == str(converted).count("Asia/Tokyo")
    assert "Invalid time" in str(failed)


async def test_filesystem_server(tmp_path: Path) -> None:
    """It declares destructive where it is, read-only elsewhere; it refuses what is outside; images are images."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    (inside / "dot.png").write_bytes(PNG)
    outside.write_text("secret")
    server = on_node("server-filesystem", str(inside))

    def person(requests: object) -> list[Approve | Deny]:
        return [Approve(), Deny("not this one")]

    async with mcp_toolkit(
        server, name="files", prefix="fs_", capabilities=[RequireApproval(is_destructive)]
    ) as kit:
        tools = [tool for tool in kit.tools if isinstance(tool, Tool)]
        destructive = {tool.name for tool in tools if is_destructive(tool)}
        unset = [tool for tool in tools if tool.annotations.destructive is None]
        calls = [
            call("fs_read_text_file", {"path": str(outside)}),
            call("fs_read_media_file", {"path": str(inside / "dot.png")}),
            call("fs_write_file", {"path": str(inside / "yes"), "content": "1"}),
            call("fs_write_file", {"path": str(inside / "no"), "content": "1"}),
            call("fs_create_directory", {"path": str(inside / "never")}),
        ]
        rules = Permissions((("fs_create_*", "deny"),))
        agent = make([calls, "done"], tools=[kit], approver=person, permissions=rules)
        result = await agent.run("go")
    assert {"fs_write_file", "fs_edit_file", "fs_move_file"} == destructive
    assert destructive == {tool.name for tool in tools if is_declared_destructive(tool)}
    assert 10 == len(unset)
    assert all(is_read_only(tool) for tool in unset)
    assert ["failed", "succeeded", "succeeded", "denied", "denied"] == [
        s for _, s in results(result.messages)
    ]
    refused, image, *_ = contents(result.messages)
    assert "Access denied - path outside allowed directories" in str(refused)
    assert (ImagePart(data=PNG, media_type="image/png"),) == image
    assert ["dot.png", "yes"] == sorted(path.name for path in inside.iterdir())


async def test_everything_server() -> None:
    """Images beside texts, links, resources and structured content, each in its place; names with dashes."""
    calls = [
        call("get-tiny-image"),
        call("get-resource-links", {"count": 2}),
        call("get-structured-content", {"location": "New York"}),
        call("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        call("get-sum", {"a": 1, "b": "2"}),
        call("trigger-long-running-operation", {"duration": 60, "steps": 600}),
    ]
    server = on_node("server-everything", "stdio")
    async with mcp_toolkit(server, name="everything", timeout=1.5) as kit:
        result = await make([calls, call("echo", {"message": "still there"}), "done"], tools=[kit]).run("go")
    statuses = [*["succeeded"] * 4, "validation_error", "unknown", "succeeded"]
    assert statuses == [status for _, status in results(result.messages)]
    image, links, weather, reference, *_, echo = contents(result.messages)
    assert isinstance(image, tuple)
    assert isinstance(links, tuple)
    assert isinstance(reference, tuple)
    assert [ImagePart] == [type(part) for part in image if isinstance(part, ImagePart | AudioPart)]
    assert 2 == sum('"type":"resource_link"' in part.text for part in links if isinstance(part, TextPart))
    assert '"temperature":33' in str(weather)
    assert any("Resource demo://resource/dynamic/text/1" in part.text for part in reference)
    assert "Echo: still there" == echo
