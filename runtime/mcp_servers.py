"""Where an MCP server is: a command to start, or an address. Plain data; knows nothing of the protocol.

Environment and headers may hold `Secret`s, which are read when a connection is made and written nowhere.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from attrs import Attribute, field, frozen

from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import text_field
from ..capabilities.secret import Secret
from ..capabilities.shapes import by_key

Value: TypeAlias = str | Secret
_NONE: Mapping[str, Value] = FrozenDict()


class InProcessServer(Protocol):
    """A server object of this process: `mcp.server.MCPServer` or `mcp.server.Server`."""

    @property
    def name(self) -> str:
        """What the server calls itself."""
        ...


def _command(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value.strip():
        raise ValueError("McpStdio.command must name the program to start")


def _args(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"McpStdio.args must be a list of strings, not {value!r:.80}")
    args = tuple(value)
    for arg in args:
        if type(arg) is not str:
            raise TypeError(f"McpStdio.args must hold strings, not {arg!r:.80}")
    return args


def _values(
    instance: object, attribute: "Attribute[Mapping[str, Value]]", value: Mapping[str, Value]
) -> None:
    what = f"{type(instance).__name__}.{attribute.name}"
    for key, one in value.items():
        if type(key) is not str or not isinstance(one, str | Secret):
            # Not its value: whoever mistook the type may have put a secret there.
            raise TypeError(
                f"{what} maps names to strings or Secrets; {key!r:.80} has a {type(one).__name__}"
            )


def _folder(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def _url(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"McpHttp.url must begin with http:// or https://, not {value!r:.80}")


@frozen
class McpStdio:
    """A server that is started as a process of ours and speaks on its standard streams.

    `env` is added to HOME, PATH and the like; nothing else of our environment is inherited. What the server
    writes on its standard error is appended to the file `stderr`; None: kept only to explain a failed start.
    """

    command: str = field(validator=_command)
    args: tuple[str, ...] = field(default=(), converter=_args)
    env: Mapping[str, Value] = field(default=_NONE, kw_only=True, converter=by_key, validator=_values)
    cwd: Path | None = field(default=None, kw_only=True, converter=_folder)
    stderr: Path | None = field(default=None, kw_only=True, converter=_folder)

    def __str__(self) -> str:
        """Return the command as people write it."""
        return " ".join((self.command, *self.args))


@frozen
class McpHttp:
    """A server at an address, over streamable HTTP; `headers` go with every request."""

    url: str = field(validator=_url)
    headers: Mapping[str, Value] = field(default=_NONE, kw_only=True, converter=by_key, validator=_values)

    def __str__(self) -> str:
        """Return the address."""
        return self.url


McpServer: TypeAlias = McpStdio | McpHttp | InProcessServer


def revealed(values: Mapping[str, Value]) -> dict[str, str]:
    """Return the values with their secrets read. Raises LookupError for one that is not set."""
    return {key: one.reveal() if isinstance(one, Secret) else one for key, one in values.items()}
