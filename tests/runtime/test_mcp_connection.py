"""A connection that breaks, is slow or is closed: each call ends as what is known of it, and the run goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from capfold.capabilities import Secret, call
from capfold.capabilities.tools import Toolkit
from capfold.runtime import RunResult, ScriptedModel
from capfold.runtime.mcp import mcp_toolkit
from capfold.runtime.mcp_servers import McpHttp, McpServer, McpStdio
from capfold.runtime.replies import Reply
from tests.runtime import mcp_desk
from tests.runtime.desk import contents, make, results

STDIO = McpStdio(sys.executable, [mcp_desk.__file__, "stdio"])
HANG = 30.0


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """Start a server over HTTP, and give its address and process id."""
    command = [sys.executable, mcp_desk.__file__, "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process.pid
        finally:
            process.kill()


@pytest.fixture(scope="module")
def http_desk() -> Iterator[str]:
    """Give the address of a server that all tests share."""
    with serving() as (address, _):
        yield address


@pytest.fixture(params=["stdio", "http", "here"])
def server(request: pytest.FixtureRequest) -> McpServer:
    """Give the desk by each of the three ways."""
    if request.param == "stdio":
        return STDIO
    if request.param == "http":
        address: str = request.getfixturevalue("http_desk")
        return McpHttp(address)
    return mcp_desk.desk()


async def there(path: Path) -> None:
    """Wait until a file is there."""
    with anyio.fail_after(HANG):
        while not await anyio.Path(path).exists():  # noqa: ASYNC110  # another process makes it
            await anyio.sleep(0.01)


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    with anyio.fail_after(HANG):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await anyio.sleep(0.01)


def waiting(folder: Path) -> dict[str, str]:
    """Return the arguments of a call that waits for ever."""
    return {"began": str(folder / "began"), "ended": str(folder / "ended")}


async def pid_of(kit: Toolkit) -> int:
    """Ask the server for its process id."""
    result = await make([call("pid"), "done"], tools=[kit]).run("go")
    return int(str(contents(result.messages)[0]))


@asynccontextmanager
async def run_beside(kit: Toolkit, replies: list[Reply], found: list[RunResult[str]]) -> AsyncIterator[None]:
    """Run an agent beside the block, and put its result into `found`."""

    async def run() -> None:
        found.append(await make(replies, tools=[kit]).run("go"))

    with anyio.fail_after(HANG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield


async def test_a_slow_call_holds_up_no_other_and_ends_as_unknown(server: McpServer, tmp_path: Path) -> None:
    """The tool's timeout governs: the server is told to stop, and serves the calls beside it and after it."""
    beside = [call("add", {"a": i, "b": i}) for i in range(8)]
    replies: list[Reply] = [
        [call("wait", waiting(tmp_path)), *beside],
        call("add", {"a": 50, "b": 50}),
        "done",
    ]
    async with mcp_toolkit(server, name="desk", timeout=2.0) as kit:
        result = await make(replies, tools=[kit]).run("go")
        await there(tmp_path / "ended")
    assert [("wait", "unknown"), *[("add", "succeeded")] * 9] == results(result.messages)
    assert "No result within 2.0 seconds" in str(contents(result.messages)[0])
    assert [*(str(2 * i) for i in range(8)), "100"] == contents(result.messages)[1:]
    assert "done" == result.output


async def test_a_cancelled_run_cancels_its_call_alone(server: McpServer, tmp_path: Path) -> None:
    """The server is told to stop; the connection serves the next run."""
    async with mcp_toolkit(server, name="desk", timeout=HANG) as kit:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make([call("wait", waiting(tmp_path)), "done"], tools=[kit]).run, "go")
            await there(tmp_path / "began")
            tasks.cancel_scope.cancel()
        await there(tmp_path / "ended")
        result = await make([call("add", {"a": 1, "b": 2}), "done"], tools=[kit]).run("go")
    assert ["3"] == contents(result.messages)


async def test_closing_under_a_call_cancels_it_as_unknown(server: McpServer, tmp_path: Path) -> None:
    """Who leaves the context while a run is at work gets its calls ended, not left hanging."""
    found: list[RunResult[str]] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            agent = make([call("wait", waiting(tmp_path)), "done"], tools=[kit])
            found.append(await agent.run("go"))

        with anyio.fail_after(HANG):
            async with mcp_toolkit(server, name="desk", timeout=HANG) as kit:
                tasks.start_soon(run)
                await there(tmp_path / "began")
    (result,) = found
    assert [("wait", "unknown")] == results(result.messages)
    assert contents(result.messages) == [
        "MCP server 'desk' gave no result: the connection was closed. It is not known whether the call took effect."
    ]
    await there(tmp_path / "ended")


async def test_a_server_killed_in_a_call_leaves_it_unknown(tmp_path: Path) -> None:
    """Kill -9 is `unknown` even of a tool that is declared idempotent; later calls fail, and the run ends well."""
    found: list[RunResult[str]] = []
    async with mcp_toolkit(STDIO, name="desk", timeout=HANG) as kit:
        pid = await pid_of(kit)
        replies: list[Reply] = [call("wait", waiting(tmp_path)), call("add", {"a": 1, "b": 2}), "done"]
        async with run_beside(kit, replies, found):
            await there(tmp_path / "began")
            os.kill(pid, signal.SIGKILL)
    (result,) = found
    assert [("wait", "unknown"), ("add", "failed")] == results(result.messages)
    lost, refused = contents(result.messages)
    assert "MCP server 'desk' gave no result: " in str(lost)
    assert (
        "MCP server 'desk' cannot be reached any more: the server ended the connection. This call was not sent."
    ) == refused
    assert "done" == result.output


async def test_a_server_that_died_between_calls_is_known_to_be_gone() -> None:
    """Nothing was sent, so nothing happened: failed, not unknown."""
    async with mcp_toolkit(STDIO, name="desk", timeout=HANG) as kit:
        pid = await pid_of(kit)
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
        ended = [("add", "unknown")]
        said: list[object] = []
        with anyio.fail_after(HANG):
            while ended == [("add", "unknown")]:  # until the end of its output has been read
                result = await make([call("add", {"a": 1, "b": 2}), "done"], tools=[kit]).run("go")
                ended, said = results(result.messages), contents(result.messages)
    assert [("add", "failed")] == ended
    assert "This call was not sent" in str(said[0])


async def test_an_http_server_killed_in_a_call_leaves_it_unknown(tmp_path: Path) -> None:
    """Over HTTP a server that is gone is told as one on standard streams is."""
    found: list[RunResult[str]] = []
    with serving() as (address, pid):
        async with mcp_toolkit(McpHttp(address), name="desk", timeout=HANG) as kit:
            replies: list[Reply] = [call("wait", waiting(tmp_path)), call("add", {"a": 1, "b": 2}), "done"]
            async with run_beside(kit, replies, found):
                await there(tmp_path / "began")
                os.kill(pid, signal.SIGKILL)
    (result,) = found
    assert [("wait", "unknown"), ("add", "failed")] == results(result.messages)
    assert "cannot be reached any more" in str(contents(result.messages)[1])
    assert "done" == result.output


async def test_an_http_server_that_dies_between_calls_is_seen_by_the_next() -> None:
    """Nobody sees it before; the call that finds out is unknown, those after it were not sent."""
    with serving() as (address, pid):
        async with mcp_toolkit(McpHttp(address), name="desk", timeout=HANG) as kit:
            os.kill(pid, signal.SIGKILL)
            replies: list[Reply] = [*[call("add", {"a": 1, "b": 2})] * 3, "done"]
            result = await make(replies, tools=[kit]).run("go")
    first, *_, last = results(result.messages)
    assert (("add", "failed"), "done") == (last, result.output)
    assert first in {("add", "unknown"), ("add", "failed")}


async def test_the_process_ends_with_the_context() -> None:
    """No server outlives its context, left well or by an exception."""
    pids: list[int] = []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  # what is raised in the context is the test
        async with mcp_toolkit(STDIO, name="desk") as kit:
            pids.append(await pid_of(kit))
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with mcp_toolkit(STDIO, name="desk") as kit:
            pids.append(await pid_of(kit))
            scope.cancel()
            await anyio.sleep_forever()
    for pid in pids:
        await gone(pid)


async def test_a_server_that_cannot_start_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error holds what the server said last, or why it never was, and nothing of its environment."""
    monkeypatch.setenv("DESK_KEY", "hush")
    code = "import sys; sys.exit('no such database')"
    for command, message in (
        (McpStdio(sys.executable, ["-c", code], env={"KEY": Secret.env("DESK_KEY")}), "no such database"),
        (McpStdio(str(tmp_path / "nothing")), "FileNotFoundError"),
    ):
        with pytest.raises(ConnectionError, match=message) as caught:
            async with mcp_toolkit(command, name="desk"):
                pytest.fail("it connected")
        assert str(caught.value).startswith(f"MCP server 'desk' ({command}) cannot be used: ")
        assert "hush" not in str(caught.value)


async def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Before the server is started."""
    server = McpStdio(sys.executable, ["-c", "pass"], stderr=tmp_path / "nowhere" / "log")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        async with mcp_toolkit(server, name="desk"):
            pytest.fail("it connected")


async def test_a_server_that_never_answers_is_given_up() -> None:
    """The time to connect bounds it, and its process is ended."""
    sleeper = McpStdio(sys.executable, ["-c", "import sys; sys.stdin.read()"])
    with pytest.raises(TimeoutError, match=r"was not ready within 0\.3 seconds"):
        async with mcp_toolkit(sleeper, name="desk", connect_timeout=0.3):
            pytest.fail("it connected")


async def test_an_address_where_nobody_listens_is_a_connection_error(free_port: int) -> None:
    """The address is in the message."""
    with pytest.raises(ConnectionError, match=f"http://127.0.0.1:{free_port}/mcp"):
        async with mcp_toolkit(McpHttp(f"http://127.0.0.1:{free_port}/mcp"), name="desk"):
            pytest.fail("it connected")


@pytest.fixture
def free_port() -> int:
    """Return a port of this machine where nobody listens."""
    import socket  # noqa: PLC0415  # for this alone

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


async def test_secrets_and_stderr_go_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The process gets the environment it is given and no other; what it grumbles goes to the file alone."""
    monkeypatch.setenv("DESK_KEY", "hush")
    monkeypatch.setenv("DESK_OTHER", "not for the server")
    code = f"""
import os, runpy, sys
print("key", os.environ["KEY"], os.environ.get("DESK_OTHER"), os.getcwd(), file=sys.stderr, flush=True)
sys.argv = ["desk", "stdio"]
runpy.run_path({mcp_desk.__file__!r}, run_name="__main__")
"""
    log = tmp_path / "log"
    env = {"KEY": Secret.env("DESK_KEY")}
    server = McpStdio(sys.executable, ["-c", code], env=env, cwd=tmp_path, stderr=log)
    async with mcp_toolkit(server, name="desk") as kit:
        await pid_of(kit)
    assert f"key hush None {tmp_path}\n" == log.read_text()
    assert ("", "") == capfd.readouterr()


async def test_headers_go_with_the_requests(monkeypatch: pytest.MonkeyPatch, http_desk: str) -> None:
    """A secret that is not set stops the connection before anything is sent."""
    monkeypatch.delenv("DESK_TOKEN", raising=False)
    server = McpHttp(http_desk, headers={"Authorization": Secret.env("DESK_TOKEN")})
    with pytest.raises(LookupError, match="DESK_TOKEN is not set"):
        async with mcp_toolkit(server, name="desk"):
            pytest.fail("it connected")
    monkeypatch.setenv("DESK_TOKEN", "hush")
    async with mcp_toolkit(server, name="desk") as kit:
        model = ScriptedModel([call("add", {"a": 1, "b": 2}), "3"])
        assert "3" == (await make(model=model, tools=[kit]).run("go")).output
