"""What a pure reducer must not do: read clocks, chance or files, or write into the record it was given.

Reads are seen where they happen, whatever name the code has for them: a difference of two outputs would show them only
now and then. Knows nothing of laws.
"""

import gc
import io
import os
import random
import sys
import time
from collections.abc import Callable, Hashable
from datetime import date
from functools import cache
from types import FrameType
from typing import Any, Generic, TypeVar, cast

from attrs import fields, has

from ..capabilities.capability import Capability
from ..capabilities.frozen import FrozenDict, FrozenList
from ..capabilities.records import replace
from ..capabilities.tools import Tool

T = TypeVar("T")

# Functions in C whose result is no function of their arguments, by what they read.
_READS: dict[object, str] = {
    **dict.fromkeys((time.time, time.time_ns, time.monotonic, time.monotonic_ns), "the clock"),
    **dict.fromkeys((time.perf_counter, time.perf_counter_ns, time.process_time), "the clock"),
    **dict.fromkeys((os.urandom,), "chance"),
    **dict.fromkeys((io.open, os.open), "a file"),
    input: "the terminal",
}
_NOW = frozenset({"now", "utcnow", "today"})
# The generator behind `random.random` and its siblings. One of the hook's own, made from its configuration, is pure.
_SHARED = random.random.__self__  # type: ignore[attr-defined]  # a bound method of C has it
# What is read there reaches no record: a line of a log has a time.
_HARMLESS = ("logging", "warnings")


def read_by(function: object) -> str | None:
    """Return what a function in C reads beside its arguments, None for nothing that is known."""
    owner = getattr(function, "__self__", None)
    if owner is _SHARED:
        return "chance"
    if isinstance(owner, type) and issubclass(owner, date) and getattr(function, "__name__", "") in _NOW:
        return "the clock"
    try:
        return _READS.get(function)
    except TypeError:  # a method of an object that has no hash
        return None


class Reads:
    """What was read while this watched: sentences such as `the clock, by time.monotonic`."""

    def __init__(self) -> None:
        """Nothing so far."""
        self.found: list[str] = []

    def note(self, frame: FrameType, event: str, function: object) -> None:
        """Take one event of the interpreter's profiler."""
        if event != "c_call":
            return
        what = read_by(function)
        if what is not None and not _is_harmless(frame):
            name = getattr(function, "__qualname__", "?")
            module = getattr(function, "__module__", None)
            self.found.append(f"{what}, by {f'{module}.{name}' if module else name}")


def _is_harmless(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if isinstance(name, str) and name.partition(".")[0] in _HARMLESS:
            return True
        if name == __name__:
            return False
        frame = frame.f_back
    return False


def watched(call: Callable[[], T], reads: Reads) -> T:
    """Return `call()`, and note in `reads` what it read of the outside.

    Under a profiler, of which there can be only one, nothing is noted: it is somebody's who measures.
    """
    if sys.getprofile() is not None:
        return call()
    collects = gc.isenabled()
    gc.disable()  # its callbacks, such as those of Hypothesis, read the clock in the middle of anything
    sys.setprofile(reads.note)
    try:
        return call()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


class Copy(Generic[T]):
    """A copy of a record that shares nothing with it which could be written to through a back door.

    What stands in two places of the record stands in the same two places of the copy, since the check compares messages
    by identity. Tools, models and capabilities are kept: they are what they are by identity.
    """

    def __init__(self, record: T) -> None:
        """Copy the record, which is `made`."""
        self._copies: dict[int, object] = {}  # id of a part -> its copy
        self._parts: dict[int, object] = {}  # id of a copy -> the part
        self.made: T = self._copied(record)

    def _copied(self, value: Any) -> Any:  # Any: each part is of its own type
        if type(value) in _LEAVES:
            return value
        known = self._copies.get(id(value))
        if known is not None:
            return known
        made = _mapped(value, self._copied)
        self._copies[id(value)] = made
        if made is not value:
            self._parts[id(made)] = value
        return made

    def returned(self, value: Any) -> Any:  # Any: as above
        """Return what a hook made of the copy as if it had made it of the record: copies become parts again."""
        if type(value) in _LEAVES:
            return value
        part = self._parts.get(id(value), self)
        if part is not self:
            return part
        return _mapped(value, self.returned)


_LEAVES = frozenset({str, int, bool, float, type(None), Tool, bytes, frozenset})


def _mapped(value: Any, fn: Callable[[Any], Any]) -> Any:  # Any: as above
    """Return a container or record made anew of its parts, each after `fn`; anything else as it is."""
    kind = type(value)
    if kind is tuple:
        return tuple([fn(member) for member in value])
    if isinstance(value, dict):
        items = {key: fn(member) for key, member in value.items()}
        return FrozenDict(items) if kind is FrozenDict else items
    if isinstance(value, list):
        members = [fn(member) for member in value]
        return FrozenList(members) if kind is FrozenList else members
    names = _names_of(cast(Hashable, kind))  # mypy takes a class of any metaclass for unhashable
    return replace(value, **{name: fn(getattr(value, name)) for name in names}) if names else value


@cache
def _names_of(kind: Any) -> tuple[str, ...]:  # Any: a class
    """Return the fields of a record that is copied: none of a model or a capability, which are what they are."""
    if not has(kind) or issubclass(kind, Capability) or hasattr(kind, "request"):
        return ()
    return tuple(field.name for field in fields(kind) if field.init)


def rebuilt(record: T) -> T:
    """Return a copy of a record that shares nothing with it which could be written to."""
    return Copy(record).made
