"""What a tool says about itself, and the two kinds of function it can have. Knows no tool."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from attrs import field, frozen

from .injected import ToolContext
from .shapes import none_or

Function: TypeAlias = Callable[..., object]
SchemaCall: TypeAlias = Callable[[dict[str, object], ToolContext], Awaitable[object]]


@frozen(kw_only=True)
class Annotations:
    """Hints about a tool, not proof. None = not declared."""

    read_only: bool | None = field(default=None, validator=none_or(bool))
    destructive: bool | None = field(default=None, validator=none_or(bool))
    idempotent: bool | None = field(default=None, validator=none_or(bool))
    open_world: bool | None = field(default=None, validator=none_or(bool))

    @property
    def is_destructive(self) -> bool:
        """Whether the tool may destroy: as declared; undeclared it does, unless it is read-only."""
        return self.read_only is not True if self.destructive is None else self.destructive


UNDECLARED = Annotations()


@frozen
class SchemaFunction:
    """The function of a tool built by `Tool.from_schema`: it takes the arguments as one plain dict."""

    call: SchemaCall
