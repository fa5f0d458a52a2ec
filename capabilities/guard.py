"""Guard: one check at one point of a run, which blocks or notes. Knows nothing of what is checked, or how.

What a guard does at each point is in `guard_points`, whose classes a guard is made of.
"""

from typing import ClassVar, Literal, Self, TypeAlias, TypeVar, get_args

from attrs import Attribute, field, fields, frozen

from .call_state import CallState
from .capability import Capability
from .frozen import Json
from .guard_checks import Check, ask, broken_by, reason_of
from .state import RunState

GuardPoint: TypeAlias = Literal["input", "output", "tool_call", "tool_result"]
OnFail: TypeAlias = Literal["error", "stop", "ask_again", "note"]

R = TypeVar("R", RunState, CallState)
_OWN = {__name__, f"{__name__}_points"}


def _check(instance: "Guard", attribute: "Attribute[Check]", value: object) -> None:
    if not callable(value) or isinstance(value, type):
        hint = f": write {value.__name__}()" if isinstance(value, type) else ""
        raise TypeError(f"Guard.check must be a function of one value, not {value!r:.80}{hint}")


def _choice(instance: "Guard", attribute: "Attribute[str]", value: str) -> None:
    legal = get_args(GuardPoint if attribute.name == "at" else OnFail)
    if value in legal:
        return
    from difflib import get_close_matches  # noqa: PLC0415  # for an error only

    near = get_close_matches(str(value), legal, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"Guard.{attribute.name} must be {', '.join(map(repr, legal))}, not {value!r:.80}{hint}")


@frozen
class Guard(Capability[tuple[int, ...]]):
    """Calls `check(value)` at one point of a run: None lets it pass, a text is the reason why not.

    `at`, and what the check gets:

    - "input": the text of this run's own input, before its first step;
    - "output": the output of a completed run, of the agent's output type, once, before it is saved;
    - "tool_call": the arguments of a call, a mapping, before anything of its batch runs;
    - "tool_result": the text that came of a call, before the model reads it.

    `on_fail`: "error" ends the run by a BlockedError, "stop" as a result with the reason, "note" goes on and puts
    it on record; "ask_again", of "output" only, has the model answer again, bounded by `output_retries`. Then the
    check gets the text of each final response, and what it refused stays out of the store.

    The guard changes nothing that passes. What "error" and "stop" block is withheld from history and store:
    input, output and results; the arguments of a blocked call stay as the model wrote them.
    A check is a plain function, which is pure, or an async one, called as the gatherer of that point: it sees the
    record as it is before the point's reducers. One that raises, or returns neither None nor a reason,
    blocks by a BlockedError, whatever `on_fail` says. Text that was streamed has been read: an output that is
    asked for again can be held back by `hold_stream=True`.

    Raises TypeError for a check that is no function, ValueError for any other choice of words.

    >>> from capfold.runtime import Agent
    >>> def polite(text):
    ...     return "shouting" if text.isupper() else None
    >>> Agent("echo", "test", capabilities=[Guard(polite, at="input", on_fail="stop")]).run_sync("HEY").output
    'shouting'
    """

    check: Check = field(validator=_check)
    at: GuardPoint = field(default="output", kw_only=True, validator=_choice)
    on_fail: OnFail = field(default="error", kw_only=True, validator=_choice)
    key: str = field(default="Guard", kw_only=True, validator=fields(Capability).key.validator)

    # Whether the check is async, and its finding a fact.
    waits: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: object) -> None:
        """Refuse a class of somebody else, whose guards would be made as one of these."""
        super().__init_subclass__(**keywords)
        if cls.__module__ not in _OWN:
            raise TypeError(
                f"{cls.__name__}: a guard is configured by its check, not derived from; write a Capability instead"
            )

    def __new__(cls, check: Check | None = None, *args: object, **keywords: object) -> Self:
        """Make a guard of its point's class."""
        if check is None:  # as `copy` and `pickle` make one
            return super().__new__(cls)
        # Its classes derive from this one: the import at the top would be a circle.
        from .guard_points import class_for  # noqa: PLC0415  # see above

        kind = class_for(check, keywords.get("at", "output"), keywords.get("on_fail", "error"))
        if issubclass(kind, cls):
            return super().__new__(kind)
        # Of another point, by `evolve`: no instance of this class, so Python does not initialise it again.
        return kind(check, *args, **keywords)  # type: ignore[return-value,arg-type]  # see above

    def __attrs_post_init__(self) -> None:
        """Refuse to ask again where no answer was given."""
        if self.on_fail == "ask_again" and self.at != "output":
            raise ValueError(
                f"Guard.on_fail 'ask_again' is for at='output', not at={self.at!r}: nobody answered there"
            )

    def initial(self) -> tuple[int, ...]:
        """Return no places: those in the history of what was asked for again."""
        return ()

    def finding(self, record: "RunState | CallState", value: object) -> Json:
        """Return what the check finds, or found where it is async, of a value that is there."""
        return record.fact(self) if self.waits else ask(self.check, value)

    def judged(self, record: R, finding: Json) -> R:
        """Return the record as it goes on after a finding."""
        problem, reason = broken_by(finding), reason_of(finding)
        if problem is not None:
            return record.fail(problem)
        if reason is None:
            return record
        match self.on_fail:
            case "stop":
                return record.stop(reason)
            case "note":
                return record.note(reason)
            case _:
                return record.fail(reason)
