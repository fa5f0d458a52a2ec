"""Where a server is: what is wrong is said when it is written down, and secrets stay where they are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capfold.capabilities import Secret
from capfold.runtime.mcp_servers import McpHttp, McpStdio, revealed


def test_a_secret_is_read_at_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither repr nor str shows it; without it there is no connection."""
    server = McpStdio("run", ["--now"], env={"KEY": Secret.env("DESK_KEY"), "MODE": "x"})
    monkeypatch.setenv("DESK_KEY", "hush")
    assert "hush" not in repr(server) + str(server)
    assert {"KEY": "hush", "MODE": "x"} == revealed(server.env)
    monkeypatch.delenv("DESK_KEY")
    with pytest.raises(LookupError, match="DESK_KEY is not set"):
        revealed(server.env)


def test_servers_are_values() -> None:
    """Equal and hashable by what they say."""
    assert {McpStdio("a", ["b"], cwd="c")} == {McpStdio("a", ("b",), cwd=Path("c"))}
    assert {McpHttp("http://a", headers={"b": "c"})} == {McpHttp("http://a", headers={"b": "c"})}
    assert "a b" == str(McpStdio("a", ["b"]))


NO_STRINGS: Any = [1]  # Any: what no type checker would let through


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: McpStdio(" "), ValueError, "McpStdio.command must name the program to start"),
        (lambda: McpStdio("a", "b"), TypeError, "McpStdio.args must be a list of strings, not 'b'"),
        (lambda: McpStdio("a", NO_STRINGS), TypeError, "McpStdio.args must hold strings, not 1"),
        (
            lambda: McpStdio("a", env={"b": 1}),
            TypeError,
            "McpStdio.env maps names to strings or Secrets; 'b' has",
        ),
        (lambda: McpHttp("localhost/mcp"), ValueError, "McpHttp.url must begin with http:// or https://"),
        (
            lambda: McpHttp("http://a", headers={"b": None}),
            TypeError,
            "McpHttp.headers maps names to strings",
        ),
    ],
)
def test_what_cannot_be_a_server_is_told(
    make: Callable[..., object], error: type[Exception], message: str
) -> None:
    """Each wrong argument is named, with what would have been right."""
    with pytest.raises(error, match=message):
        make()
