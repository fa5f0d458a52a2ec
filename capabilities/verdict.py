"""Verdicts and outcomes of tool calls: what was decided before one ran, and what became of it.

Plain data. Knows nothing of run states, hooks or who asks.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import Attribute, evolve, field, frozen

from .frozen import EMPTY, FrozenDict, Json, freeze_mapping, is_finite, same
from .messages import STATUSES, Content, Status, as_content, text_field

Always: TypeAlias = Literal["off", "arguments", "tool"]
ALWAYS: tuple[Always, ...] = ("off", "arguments", "tool")  # from the narrowest grant to the widest
Effect: TypeAlias = Literal["yes", "no", "maybe"]
NOT_RUN_NOTE = "Not run: the run ended before this call was executed. It had no effect."


@frozen
class Problem:
    """One thing that is wrong with the arguments of a call; `path` as in `$.items[0].n`."""

    path: str
    message: str


@frozen
class Refusal:
    """The call must not run. `by`: key of the capability (the runtime fills it), or a permission."""

    reason: str = field(validator=text_field)
    by: str | None = None


def timeout_field(instance: object, attribute: "Attribute[float | None]", value: float | None) -> None:
    """Validate an attrs field that must be a finite, positive number of seconds or None."""
    if value is None:
        return
    name = f"{type(instance).__name__}.{attribute.name}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {type(value).__name__}")
    if not (value > 0 and is_finite(value)):
        raise ValueError(f"{name} must be a positive number of seconds or None, not {value!r}")


def always_field(instance: object, attribute: "Attribute[Always]", value: Always) -> None:
    """Validate an attrs field that says how far a standing grant may go."""
    if value not in ALWAYS:
        raise ValueError(
            f"{type(instance).__name__}.always must be one of {', '.join(ALWAYS)}; not {value!r}"
        )


def _count(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"Outcome.attempts must be an integer of at least 0, not {value!r}")


@frozen
class Ask:
    """A person must approve the call first. `timeout` in seconds; `always`: how far a grant may go."""

    prompt: str = field(validator=text_field)
    denied: str = field(default="The user denied this tool call.", kw_only=True, validator=text_field)
    timeout: float | None = field(default=None, kw_only=True, validator=timeout_field)
    always: Always = field(default="off", kw_only=True, validator=always_field)
    by: str | None = field(default=None, kw_only=True)


@frozen
class Answered:
    """The call is answered without running."""

    content: Content = field(converter=as_content)
    by: str | None = None


@frozen
class Verdict:
    """What has been decided about a call so far: a join, to which hooks only ever add.

    The first refusal and the first answer stand; approvals add up, and one question asks for all of them.
    Refused > approval > answer > none decides the call.
    """

    refused: Refusal | None = None
    approval: tuple[Ask, ...] = ()
    answer: Answered | None = None

    def join(self, other: "Verdict") -> "Verdict":
        """Return the two verdicts together; what `self` holds stands."""
        return Verdict(
            self.refused if self.refused is not None else other.refused,
            self.approval + tuple(ask for ask in other.approval if ask not in self.approval),
            self.answer if self.answer is not None else other.answer,
        )

    def includes(self, other: "Verdict") -> bool:
        """Tell whether everything in `other` still stands in `self`, unchanged and in its order."""
        return (
            (other.refused is None or same(self.refused, other.refused))
            and same(self.approval[: len(other.approval)], other.approval)
            and (other.answer is None or same(self.answer, other.answer))
        )


UNDECIDED = Verdict()


@frozen
class Failure:
    """An exception as data: its type's name, its first line, and the names of the types it derives from."""

    type: str
    message: str
    bases: tuple[str, ...] = ()


def _status(instance: object, attribute: "Attribute[Status]", value: Status) -> None:
    if value not in STATUSES:
        raise ValueError(f"Outcome.status must be one of {', '.join(STATUSES)}; not {value!r}")


def _metadata(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "Outcome.metadata")


@frozen  # with slots: of a run that waits for its model, the log keeps one object per call in place of two
class Outcome:
    """What became of one tool call; exactly one per call.

    `attempts`: how often its body was started. `by`: who decided: "tool", "runtime", "person", or the key of
    a capability.
    """

    status: Status = field(validator=_status)
    content: Content = field(default="", converter=as_content)
    metadata: FrozenDict[Json] = field(default=EMPTY, kw_only=True, converter=_metadata)
    error: Failure | None = field(default=None, kw_only=True)
    attempts: int = field(default=0, kw_only=True, validator=_count)
    by: str = field(default="tool", kw_only=True, validator=text_field)

    @property
    def effect(self) -> Effect:
        """Whether the tool's effect happened: "yes", "no", or "maybe" where nobody can know.

        An attempt that was not the last one is not known: it may have ended as `unknown`.
        """
        if self.status == "succeeded":
            return "yes"
        if self.attempts == 0:
            return "no"
        if self.status == "failed" and self.attempts == 1 and self.error is not None:
            return "no" if "ToolFailed" in (self.error.type, *self.error.bases) else "maybe"
        return "maybe"

    def with_content(self, content: Content, metadata: Mapping[str, object] | None = None) -> "Outcome":
        """Return the outcome with other content, and with `metadata` merged over its own."""
        merged = self.metadata
        if metadata is not None:
            merged = freeze_mapping({**self.metadata, **metadata}, "Outcome.metadata")
        return evolve(self, content=content, metadata=merged)
