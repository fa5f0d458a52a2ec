"""Validators and converters that the fields of several records share. Knows no record.

They look at the shape of a value, never at its elements one by one where there can be thousands.
"""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TypeVar

from attrs import Attribute

from .frozen import FrozenDict

T = TypeVar("T")
Validator = Callable[[object, "Attribute[T]", T], None]


def of_type(kind: type[T]) -> Validator[T]:
    """Make a validator for a field that holds a `kind`, and no subclass of it."""

    def validate(instance: object, attribute: "Attribute[T]", value: T) -> None:
        if type(value) is not kind:
            name = f"{type(instance).__name__}.{attribute.name}"
            raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")

    return validate


def none_or(kind: type[T]) -> Validator[T | None]:
    """Make a validator for a field that holds None or a `kind`, and no subclass of it."""

    def validate(instance: object, attribute: "Attribute[T | None]", value: T | None) -> None:
        if value is not None and type(value) is not kind:
            name = f"{type(instance).__name__}.{attribute.name}"
            raise TypeError(f"{name} must be a {kind.__name__} or None, not {type(value).__name__}")

    return validate


def count_field(instance: object, attribute: "Attribute[int]", value: int) -> None:
    """Validate a field that counts from 0."""
    name = f"{type(instance).__name__}.{attribute.name}"
    if type(value) is not int:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must be at least 0, not {value}")


def at_least(least: int, meaning: str = "", what: str = "an integer") -> Validator[int]:
    """Make a validator for a field that holds `what` of at least `least`; `meaning`: why that is the least."""

    def validate(instance: object, attribute: "Attribute[int]", value: int) -> None:
        name = f"{type(instance).__name__}.{attribute.name}"
        if type(value) is not int:
            raise TypeError(f"{name} must be {what}, not {value!r:.80}")
        if value < least:
            raise ValueError(f"{name} is {value}: the least is {least}{meaning and f', {meaning}'}")

    return validate


def one_of(*choices: T) -> Validator[T]:
    """Make a validator for a field that holds one of `choices`."""

    def validate(instance: object, attribute: "Attribute[T]", value: T) -> None:
        if value not in choices:
            name = f"{type(instance).__name__}.{attribute.name}"
            raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")

    return validate


def texts_field(instance: object, attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    """Validate a field that holds a tuple of strings."""
    if type(value) is not tuple or not all(type(text) is str for text in value):
        raise TypeError(f"{type(instance).__name__}.{attribute.name} must be a tuple of strings")


def check_text(value: object, what: str) -> None:
    """Raise TypeError unless the argument of a verb is a string."""
    if type(value) is not str:
        raise TypeError(f"{what} takes a string, not {type(value).__name__}")


def is_async(function: object) -> bool:
    """Tell whether a function, or a callable object, is declared async."""
    # Most predicates: a plain function without a mark. What inspect asks of it, at a tenth of the cost.
    if type(function) is FunctionType and not function.__dict__:
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


def check_plain(function: object, what: str) -> None:
    """Raise TypeError unless a predicate is a plain function; what must wait goes into a gatherer."""
    if not callable(function) or isinstance(function, type) or is_async(function):
        raise TypeError(f"{what} takes a plain function that returns a bool, not {function!r:.80}")


def checked_bool(answer: object, what: str) -> bool:
    """Return what a predicate answered. Raises TypeError when it is no bool: a truthy string is a bug."""
    if type(answer) is not bool:
        raise TypeError(f"{what} must return True or False, not {answer!r:.80}")
    return answer


def by_key(value: Mapping[str, object]) -> FrozenDict[object]:
    """Convert a mapping of values that are immutable by themselves; they need not be JSON."""
    return value if type(value) is FrozenDict else FrozenDict(value)
