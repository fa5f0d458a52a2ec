"""Tool: a descriptor that the model, the codec and the log see, and a function that only the runtime calls.

Knows nothing of runs, or of how arguments are validated.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Union, Unpack

from attrs import Attribute, evolve, field, frozen

from .annotations import UNDECLARED, Annotations, Function, SchemaCall, SchemaFunction
from .frozen import EMPTY, FrozenDict, Json, digest, freeze, freeze_mapping
from .messages import text_field
from .shapes import count_field, is_async, of_type
from .signatures import check_schema
from .verdict import timeout_field

if TYPE_CHECKING:
    from .capability import AnyCapability

# What a tool list accepts of a capability: checked and made uniform by `Tool.capabilities`' converter.
Scoped: TypeAlias = Union["AnyCapability", Callable[..., Awaitable[object]]]


class ToolOptions(TypedDict, total=False):
    """The keywords of `Tool` that `tool` and `Tool.from_schema` hand on; the annotations apart."""

    max_retries: int
    timeout: float | None
    sequential: bool
    metadata: Mapping[str, object]
    capabilities: Iterable[Scoped]


def _parameters(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "Tool.parameters")


def _metadata(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "Tool.metadata")


def scope_of(value: Iterable[Scoped]) -> "tuple[AnyCapability, ...]":
    """Convert the capabilities of a tool or toolkit; TypeError for one whose hooks are not for tools."""
    # A capability knows tools, a tool only carries capabilities: the import at the top would be a circle.
    from .scopes import tool_scope  # noqa: PLC0415  # see above

    return tool_scope(value)


def _schema(instance: object, attribute: "Attribute[FrozenDict[Json]]", value: FrozenDict[Json]) -> None:
    check_schema(value)


def name_field(instance: object, attribute: "Attribute[str]", value: str) -> None:
    """Validate the name of a tool or toolkit."""
    text_field(instance, attribute, value)
    if not value:
        raise ValueError(f"{type(instance).__name__}.name must not be empty")


def _function(
    instance: object,
    attribute: "Attribute[Function | SchemaFunction | None]",
    value: Function | SchemaFunction | None,
) -> None:
    if value is not None and not isinstance(value, SchemaFunction) and not callable(value):
        raise TypeError(f"Tool.function must be a function or None, not {type(value).__name__}")


class _Digested:
    """A slot for the digest. A cached property of attrs makes every read of any field 260 instructions dearer."""

    __slots__ = ("_digest",)
    _digest: str


@frozen
class Tool(_Digested):
    """A tool: name, description, JSON Schema of its arguments, and the function that does the work.

    `function` None: only a port that runs tools elsewhere can execute it. `timeout` in seconds; None = the
    run's `tool_timeout`. `max_retries`: failed steps in a row that are forgiven. `sequential`: never beside
    another call. Raises ValueError for a schema that is not a valid JSON Schema of an object.
    """

    name: str = field(validator=name_field)
    description: str = field(validator=text_field)
    parameters: FrozenDict[Json] = field(converter=_parameters, validator=_schema)
    function: Function | SchemaFunction | None = field(default=None, validator=_function)
    annotations: Annotations = field(default=Annotations(), kw_only=True, validator=of_type(Annotations))
    max_retries: int = field(default=3, kw_only=True, validator=count_field)
    timeout: float | None = field(default=None, kw_only=True, validator=timeout_field)
    sequential: bool = field(default=False, kw_only=True, validator=of_type(bool))
    metadata: FrozenDict[Json] = field(default=EMPTY, kw_only=True, converter=_metadata)
    capabilities: "tuple[AnyCapability, ...]" = field(default=(), kw_only=True, converter=scope_of)

    def with_capabilities(self, *capabilities: Scoped) -> "Tool":
        """Return a new tool in which `capabilities` stand outside those it has; this one is unchanged."""
        return evolve(self, capabilities=(*scope_of(capabilities), *self.capabilities))

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, object],
        call: SchemaCall,
        *,
        annotations: Annotations = UNDECLARED,
        **options: Unpack[ToolOptions],
    ) -> "Tool":
        """Build a tool from a given JSON Schema; `call` gets the validated arguments as a plain dict.

        Raises TypeError when `call` is not async, ValueError when the schema is none.
        """
        if not is_async(call):
            raise TypeError(f"from_schema({name!r}): call must be an async function (arguments, context)")
        return cls(name, description, parameters, SchemaFunction(call), annotations=annotations, **options)

    @property
    def descriptor(self) -> FrozenDict[Json]:
        """What codec and log write of a tool: everything but the function and the capabilities' code."""
        hints = self.annotations
        described = freeze(
            {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
                "annotations": {
                    "read_only": hints.read_only,
                    "destructive": hints.destructive,
                    "idempotent": hints.idempotent,
                    "open_world": hints.open_world,
                },
                "max_retries": self.max_retries,
                "timeout": self.timeout,
                "sequential": self.sequential,
                "metadata": self.metadata,
                "capabilities": [capability.key for capability in self.capabilities],
            }
        )
        assert isinstance(described, FrozenDict)
        return described

    @property
    def digest(self) -> str:
        """The SHA-256 of the descriptor; made once."""
        try:
            return self._digest
        except AttributeError:
            object.__setattr__(self, "_digest", digest(self.descriptor))
            return self._digest
