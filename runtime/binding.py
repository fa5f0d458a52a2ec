"""From a Python annotation to the hook that makes its value of JSON that fits its schema.

Plain JSON types need none; classes and times are made by the given converter, pydantic models and
enums by themselves, containers and unions here. Knows nothing of functions or parameters.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ..capabilities.frozen import Json, thaw
from ..capabilities.json_schema import Kind, compile_schema, container, is_plain, members, schema_of, unwrap
from .errors import message_of
from .integers import with_integers
from .late_codec import Structurer

if TYPE_CHECKING:
    from cattrs import Converter

Hook = Callable[[Any], object]  # Any: a hook takes JSON of the shape its schema fixed
_MAX_MESSAGE: Final = 300


class Misfit(ValueError):
    """A value that fits the schema but not the type, as "2024-13-01" for a date; `found` has all of them."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        """Raise for pairs of a path below the value, as `[0].when`, and what is wrong there."""
        self.found = tuple(found)
        super().__init__(
            "; ".join(f"{path.lstrip('.') or 'value'}: {text}" for path, text in self.found)[:1000]
        )


def integer(value: float) -> int:
    """Return what schema calls an integer, which may be `1.0`, as an int."""
    return value if type(value) is int else int(value)


def prepare(hook: Hook | None, schema: object, root: Mapping[str, object]) -> Hook:
    """Thaw, make integers of what the schema calls so, then structure."""

    def prepared(value: Json) -> object:
        if type(value) is str:
            return value if hook is None else hook(value)
        plain = with_integers(thaw(value), schema, root)
        return plain if hook is None else hook(plain)

    return prepared


def checked_hook(annotation: object, converter: Structurer) -> Hook:
    """Bind a value that no schema has judged yet: context of the caller, or injected by a hook."""
    schema = schema_of(annotation)
    validator = compile_schema(schema)
    hook = prepare(bind(annotation, converter), schema, schema)

    def checked(value: Json) -> object:
        if not validator.is_valid(thaw(value)):
            raise Misfit([("", f"{type(value).__name__} given")])
        return hook(value)

    return checked


def bind(annotation: object, converter: Structurer) -> Hook | None:
    """Return what makes the Python value of a plain JSON one, or None where they are the same."""
    if is_plain(annotation):
        return None
    bare = unwrap(annotation)
    if union := members(bare):
        return _bind_union(union, converter)
    if found := container(bare):
        return _bind_container(*found, converter)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _leaf(bare)  # not by the converter, where a hook for str would also take a str enum
    own = getattr(bare, "model_validate", None)  # pydantic, by its protocol
    return _leaf(own if own is not None else _converter_hook(bare, converter))


def _converter_hook(kind: Any, converter: Structurer) -> Hook:  # Any: cattrs takes types and annotations
    hook = converter.get_structure_hook(kind)
    return lambda value: hook(value, kind)


def _leaf(hook: Hook) -> Hook:
    def leaf(value: object) -> object:
        try:
            return hook(value)
        except Exception as error:  # validators and constructors of the user's own classes run here
            raise Misfit(_reasons(error)) from error

    return leaf


def _bind_union(union: tuple[object, ...], converter: Structurer) -> Hook:
    """The first member whose schema the value fits and that can be structured."""
    choices = [
        (compile_schema(schema_of(member)), bind(member, converter))
        for member in union
        if member is not type(None)
    ]
    optional = len(choices) < len(union)

    def choose(value: object) -> object:
        if value is None and optional:
            return None
        misfit: Misfit | None = None
        for validator, hook in choices:
            if len(choices) > 1 and not validator.is_valid(value):
                continue
            try:
                return value if hook is None else hook(value)
            except Misfit as error:
                misfit = misfit or error
        raise misfit or Misfit([("", "fits none of the types it may have")])

    return choose


def register_open_unions(codec: "Converter") -> None:
    """Have a codec read unions in the fields of classes as `bind` does: models and people write no tags."""

    def make(union: Any) -> Callable[[object, object], object]:  # Any: as in Hook
        hook = bind(union, codec)
        return lambda value, _: value if hook is None else hook(value)

    codec.register_structure_hook_factory(lambda kind: bool(members(kind)), make)


def _bind_container(kind: Kind, arguments: tuple[object, ...], converter: Structurer) -> Hook:
    build: Hook = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}[kind]
    if kind == "dict":
        member = bind(arguments[1], converter)
        return lambda value: dict(zip(value, _each(value.items(), lambda _: member, ".{}"), strict=True))
    if kind == "tuple" and arguments and arguments[-1] is not ...:
        each = [bind(argument, converter) for argument in arguments if argument != ()]
        return lambda value: build(_each(enumerate(value), each.__getitem__, "[{}]"))
    hook = bind(arguments[0], converter) if arguments else None
    make = _leaf(build)  # a set refuses what is not hashable
    return lambda value: make(value if hook is None else _each(enumerate(value), lambda _: hook, "[{}]"))


def _each(
    items: Iterable[tuple[Any, object]], hook_at: Callable[[Any], Hook | None], form: str
) -> list[object]:
    # Any: an index or a key. All members are tried, so that all problems are found at once.
    made: list[object] = []
    found: list[tuple[str, str]] = []
    for at, value in items:
        hook = hook_at(at)
        try:
            made.append(value if hook is None else hook(value))
        except Misfit as misfit:
            found.extend((form.format(at) + path, text) for path, text in misfit.found)
    if found:
        raise Misfit(found)
    return made


def _reasons(error: Exception) -> list[tuple[str, str]]:
    """Return paths and reasons of what a converter or a pydantic model raised."""
    details = getattr(error, "errors", None)
    if callable(details) and hasattr(error, "error_count"):  # pydantic, by its protocol
        return [
            ("".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in one["loc"]), _short(one["msg"]))
            for one in details()
        ]
    if isinstance(error, ExceptionGroup):
        from cattrs import transform_error  # noqa: PLC0415  # who raises one has loaded it

        parts = [text.rpartition(" @ ") for text in transform_error(error, path="", format_exception=_say)]
        return [(path, _short(text)) for text, _, path in parts]
    return [("", _short(_say(error, None)))]


def _say(error: BaseException, kind: object) -> str:
    name = f"{getattr(kind, '__name__', kind)}: " if kind is not None else ""
    if isinstance(error, KeyError):
        return f"{name}{error} is missing"
    # Validators of attrs add the field and the value as further arguments: the first says it all.
    said = error.args[0] if len(error.args) > 1 and isinstance(error.args[0], str) else message_of(error)
    return f"{name}{said or type(error).__name__}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"
