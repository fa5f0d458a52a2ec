"""What a capability class or instance may not be, each refused when it is made and not when it runs.

Pure checks, called by `Capability` alone.
"""

import inspect
from collections.abc import Callable, Iterator

from attrs import AttrsInstance, fields, has

from .grid import FORMER_NAMES, HOOK_PREFIXES, HOOKS

# How like a hook the name of another method may be: `befor_run` is, `prepare_run` is not.
_LIKE_A_HOOK = 0.85
_FAR_AND_WIDE = 0.4


def check_hooks(cls: type, base: type) -> None:
    """Raise TypeError for a method of a subclass of `base` that is a wrong hook, or no hook by mistake.

    And for a class attribute that takes the place of a field: it would be ignored without a word.
    """
    _check_defaults(cls, base)
    helpers = set(dir(base))
    for part, name, value in _own(cls, base):
        if name in HOOKS:
            _check_hook(cls, name, value)
        elif callable(value) or isinstance(value, classmethod):
            if name in helpers or name in inspect.get_annotations(
                part
            ):  # the default of a field is no method
                continue
            near = _nearest(name)
            if near is not None:
                meant = f"did you mean {near!r}?" if near else f"hooks are {', '.join(HOOKS)}."
                raise TypeError(
                    f"{cls.__name__}.{name} is no hook and would never be called: {meant} "
                    "(a helper takes an underscore)"
                )


def _check_defaults(cls: type, base: type) -> None:
    for i, part in enumerate(cls.__mro__):
        if part in base.__mro__:
            continue
        annotated = inspect.get_annotations(part)
        inherited = {item.name for other in cls.__mro__[i + 1 :] if has(other) for item in fields(other)}
        for name in inherited & vars(part).keys() - annotated.keys():
            if not inspect.ismemberdescriptor(vars(part)[name]):
                raise TypeError(
                    f"{part.__name__}.{name} is a field of a base class; a plain attribute would be ignored: "
                    f"write {name}: ... = field(default=..., kw_only=True), with @frozen"
                )


def _own(cls: type, base: type) -> Iterator[tuple[type, str, object]]:
    shared = set(base.__mro__)  # mixins are looked at too: their misspelt hooks slip through just as well
    for part in cls.__mro__:
        if part not in shared:
            for name, value in vars(part).items():
                if not name.startswith("_"):
                    yield part, name, value


def _nearest(name: str) -> str | None:
    """Return the hook that was meant, "" if it is unclear which, None for a name that is unlike any hook."""
    if name in FORMER_NAMES:
        return FORMER_NAMES[name]
    from difflib import get_close_matches  # noqa: PLC0415  # for names that are no hook's only

    if name.startswith(HOOK_PREFIXES):
        return next(iter(get_close_matches(name, HOOKS, 1, _FAR_AND_WIDE)), "")
    return next(iter(get_close_matches(name, HOOKS, 1, _LIKE_A_HOOK)), None)


def _check_hook(cls: type, name: str, value: object) -> None:
    kind = HOOKS[name].kind
    if isinstance(value, staticmethod | classmethod) or not callable(value):
        raise TypeError(f"{cls.__name__}.{name} must be a method, not {type(value).__name__}")
    function = inspect.unwrap(value)
    is_async = inspect.iscoroutinefunction(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{cls.__name__}.{name} is a generator: it must return its one result")
    if is_async and kind == "reducer":
        raise TypeError(
            f"{cls.__name__}.{name} is async: a reducer is a plain function; what waits goes into a gatherer"
        )
    if kind != "reducer" and not is_async:
        raise TypeError(f"{cls.__name__}.{name} must be 'async def': it is a {kind}")
    taken = _arguments(name)
    try:
        inspect.signature(value).bind(None, *taken)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}.{name} must take (self, {', '.join(taken)}): {error}") from None


def _arguments(name: str) -> tuple[str, ...]:
    hook = HOOKS[name]
    record = "state" if hook.record == "RunState" else "call"
    if hook.kind == "reducer":
        return (record,)
    if hook.kind == "gatherer":
        return (record, "outside")
    return ("call_next", record, "messages") if name == "wrap_save_messages" else ("call_next", record)


def check_decorated(cls: type, base: type) -> None:
    """Raise TypeError for a class whose annotated fields attrs never saw: they would be ignored silently."""
    for part in cls.__mro__:
        if part is base or not issubclass(part, base) or "__attrs_attrs__" in vars(part):
            continue
        for name, annotation in inspect.get_annotations(part).items():
            if "ClassVar" not in str(annotation):
                raise TypeError(f"{part.__name__} has the field {name!r} but no @frozen: decorate the class")


def check_fields(cls: type[AttrsInstance], base: type[AttrsInstance]) -> None:
    """Raise TypeError for a field that takes the name of something the base class has."""
    ours = {item.name for item in fields(base)}
    for item in fields(cls):
        if item.name not in ours and hasattr(base, item.name):
            raise TypeError(
                f"{cls.__name__}.{item.name} shadows {base.__name__}.{item.name}: rename the field"
            )


def check_values(capability: AttrsInstance, initial: Callable[[], object]) -> None:
    """Raise TypeError for a field or a slot that can change; `initial` makes the value of the slot."""
    kind = type(capability)
    key: object = getattr(capability, "key", None)
    if type(key) is not str or not key:  # a subclass may redefine the field, and with it drop its validator
        raise TypeError(f"{kind.__name__}.key must be a non-empty string, not {key!r:.80}")
    for item in fields(kind):
        value = getattr(capability, item.name)
        if not _is_hashable(value):
            raise TypeError(
                f"{kind.__name__}.{item.name} holds a {type(value).__name__}, which can change: use a tuple, "
                "a frozenset or freeze(...); state of a run goes into the slot, shared things into deps"
            )
    try:
        slot = initial()
    except Exception as error:
        raise TypeError(
            f"{kind.__name__}.initial() failed ({error}): override it to return a value"
        ) from error
    if not _is_hashable(slot):
        raise TypeError(
            f"{kind.__name__}.initial() returned a {type(slot).__name__}, which can change: a slot holds "
            "immutable state, such as an int, a tuple, or a frozen attrs record"
        )


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
