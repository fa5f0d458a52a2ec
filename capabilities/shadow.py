"""Shadow: capabilities on trial. They are called on the records of real runs, and change nothing.

Each becomes a capability of its own in the composed list, `Shadowed`, with the hooks and the type of slot that it
has. Knows nothing of how records are checked.
"""

import inspect
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Final, TypeVar, cast, get_origin

from attrs import evolve, field, frozen

from .capability import AnyCapability, Capability, state_type
from .combinators import Group, Leaf, leaves
from .frozen import FreezeError, FrozenDict, Json, freeze, same, thaw
from .grid import HOOKS, WRAPPERS
from .outside import Outside
from .records import replace
from .state import RunState
from .would_have import quoted, would_have

if TYPE_CHECKING:
    from .call_state import CallState
    from .description import Description

    Record = RunState | CallState

S = TypeVar("S")
R = TypeVar("R", bound="RunState | CallState")
_NONE: Final = object()
NO_FACTS: Final[FrozenDict[object]] = FrozenDict()


def shadow_key(shadow: str, member: str) -> str:
    """Return the key of a capability in the composed list, by that of its Shadow and its own."""
    return f"{shadow}({member})"


@frozen(init=False)
class Shadow(Group):
    """Tries capabilities out: they run beside the real list on the same records, and the log says what they would do.

    A hook of a capability in the shadow gets the record that the run has reached; what it returns is put on record
    as a note ("would have refused call c1 (pay): Not today.") and goes no further. No capability in the list, none
    in the shadow, no tool and no model sees anything of it. What it remembers, its slot, is kept apart under a key
    of its own, and follows what really happened; so two versions of one capability, of one key, may run side by
    side, one of them in the shadow. Conditions hold as they do outside: `when`, `for_tools`, toolkits.
    An exception, or a write that a run would reject, is a note too; the run goes on.

    Gatherers are called, since there is nothing to judge by without their facts, which stand in the log as well.
    A request that one sends is charged to the run, and the run's limits and `tool_timeout` hold for it.

    `capabilities`: as in a list; the actor in the log is `Shadow(key)`, by `key` of Shadow and of the capability.
    Raises TypeError for what has an effect by itself and so cannot be in a shadow: wrappers, tools, instructions.

    >>> from capfold.capabilities import RefuseTools, call, tool
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> pay = tool(lambda: "paid", name="pay", description="Pay.")
    >>> trial = Shadow(RefuseTools({"pay"}, reason="Not today."))
    >>> agent = Agent("desk", ScriptedModel([call("pay", id="c1"), "ok"]), tools=[pay], capabilities=[trial])
    >>> result = agent.run_sync("Pay.")
    >>> result.messages[2].content, result.messages[2].status
    ('paid', 'succeeded')
    >>> [record.changes["notes"]["added"] for record in result.log if record.actor == "Shadow(RefuseTools)"]
    [['would have refused call c1 (pay): Not today.']]
    """

    def __init__(
        self,
        *capabilities: AnyCapability,
        members: Iterable[AnyCapability] = (),
        key: str = "Shadow",
        hold_stream: bool = False,
    ) -> None:
        """Put capabilities into the shadow; `members`: more of them, as `evolve` gives them."""
        self.__attrs_init__((*capabilities, *members), key=key, hold_stream=hold_stream)

    def __attrs_post_init__(self) -> None:
        """Refuse what would have an effect of its own."""
        if self.hold_stream:
            raise TypeError("Shadow holds no stream back: it changes nothing")
        for leaf in leaves(self.members):
            member = leaf.capability
            wraps = sorted(member.overrides & {*WRAPPERS})
            what = f"overrides {', '.join(wraps)}" if wraps else None
            if what is None and member.provide_tools():
                what = "brings tools along"
            if what is None and member.provide_instructions():
                what = "brings instructions along"
            if what is not None:
                raise TypeError(f"Shadow cannot hold {member.key}, which {what}: a shadow has no effect")

    def beneath(self, leaf: Leaf) -> Leaf:
        """Return the leaf with its capability in the shadow."""
        member = leaf.capability
        made = _shadowed(cast(Hashable, type(member)))
        return evolve(leaf, capability=made(member, key=shadow_key(self.key, member.key)))


@frozen
class Shadowed(Capability[S]):
    """One capability in the shadow. Its hooks are those of `member`, its slot holds the member's."""

    member: Capability[S] = field()

    def initial(self) -> S:
        """Return what the member remembers at first."""
        return self.member.initial()

    def tool_names(self) -> frozenset[str]:
        """Return what the member mentions."""
        return self.member.tool_names()

    def needs_deps(self) -> frozenset[str]:
        """Return what the member needs."""
        return self.member.needs_deps()

    def describe(self) -> "Description":
        """Describe the member; never complete, since the class is made for it and has no name: `Shadow` has one."""
        return evolve(super().describe(), complete=False)

    def attempt(self, hook: str, record: R) -> R:
        """Call a reducer of the member on the record as it would be alone with it; return it with what was found."""
        brought = record.facts.get(self.key)
        facts = brought if isinstance(brought, FrozenDict) else FrozenDict[Json]()
        if "error" in facts:
            return cast(R, record.note(f"would have ended the run: its gatherer {facts['error']}"))
        try:
            given = self._alone(record, facts)
            after = getattr(self.member, hook)(given)
        except Exception as error:  # noqa: BLE001  # the hook is the user's, and in the shadow nothing ends a run
            return cast(R, record.note(f"would have ended the run: {hook} {_raised(error)}"))
        if after is given:
            return record
        if type(after) is not type(given):
            _discard(after)
            what = f"{hook} returned {type(after).__name__}, not {type(given).__name__}"
            return cast(R, record.note(f"would have ended the run: {what}"))
        return self._told(hook, record, given, after)

    async def bring(self, hook: str, record: "Record", outside: Outside) -> Json:
        """Call a gatherer of the member; return what it brought, or what it failed by."""
        found: object = None
        try:
            found = await getattr(self.member, hook)(self._alone(record, FrozenDict()), outside)
            return FrozenDict({"fact": freeze(thaw(found))})
        except FreezeError as error:
            _discard(found)
            return FrozenDict({"error": quoted(f"returned what is no JSON: {error}")})
        except Exception as error:  # noqa: BLE001  # as above
            return FrozenDict({"error": _raised(error)})

    def _alone(self, record: R, facts: FrozenDict[Json]) -> R:
        """Return the record as the member would see it: its own slot and fact under its own key."""
        run = record if isinstance(record, RunState) else record.run
        own = {self.member.key, self.key}
        slots = {key: value for key, value in run.slots.items() if key not in own}
        if self.key in run.slots:
            slots[self.member.key] = run.slots[self.key]
        # A hook may write into an output that has lists, which would be the run's own.
        output = run.output if isinstance(run.output, str) else deepcopy(run.output)
        brought = FrozenDict({self.member.key: facts["fact"]}) if "fact" in facts else NO_FACTS
        if isinstance(record, RunState):
            return cast(R, replace(run, slots=FrozenDict(slots), output=output, facts=brought))
        run = replace(run, slots=FrozenDict(slots), output=output)
        return replace(record, run=run, facts=brought)

    def _told(self, hook: str, record: R, given: "Record", after: "Record") -> R:
        told = list(would_have(given, after, hook, self.member.key))
        was, now = (
            (one if isinstance(one, RunState) else one.run).slots.get(self.member.key, _NONE)
            for one in (given, after)
        )
        if not (now is was or same(was, now)):
            problem = self._no_slot(now)
            if problem is None:
                record = cast(R, record.put(self, cast(S, now)))
            else:
                told.append(f"would have been rejected: {problem}")
        return cast(R, record.note("; ".join(told))) if told else record

    def _no_slot(self, value: object) -> str | None:
        """Say why a value cannot be kept, as far as can be told without the codec; or None."""
        if value is _NONE:
            return "a slot is set, not removed"
        try:
            hash(value)
        except TypeError:
            return f"a slot holds an immutable value, and {type(value).__name__} can change"
        declared = state_type(type(self))
        kind = get_origin(declared) or declared
        if isinstance(kind, type) and type(value) is not kind:
            return f"the slot is declared as {declared}, and this is a {type(value).__name__}"
        return None


def _raised(error: Exception) -> str:
    return quoted(f"raised {type(error).__name__}: {error}")


def _discard(value: object) -> None:
    """Close a coroutine that nobody will await, so that nothing warns of it later and elsewhere."""
    if inspect.iscoroutine(value):
        value.close()


@cache
def _shadowed(cls: Hashable) -> Callable[..., Shadowed[object]]:
    """Return the class for members of a class: with the same hooks, and a slot of the same type."""
    kind = cast(type[AnyCapability], cls)
    declared = state_type(kind)
    base: object = Shadowed if declared is None else Shadowed[declared]  # type: ignore[valid-type]  # a value here
    namespace: dict[str, object] = {"__slots__": (), "__module__": __name__, "__doc__": Shadowed.__doc__}
    namespace["declares"] = kind.declares & {"repairs"}  # who repairs is called for calls that need it
    for hook in kind.overrides:
        namespace[hook] = _gatherer(hook) if HOOKS[hook].kind == "gatherer" else _reducer(hook)
    return cast(
        "type[Shadowed[object]]", new_class("Shadowed", (base,), exec_body=lambda ns: ns.update(namespace))
    )


def _reducer(hook: str) -> "Callable[[Shadowed[object], Record], Record]":
    def reduce(self: Shadowed[object], record: "Record") -> "Record":
        return self.attempt(hook, record)

    return reduce


def _gatherer(hook: str) -> Callable[..., object]:
    async def gather(self: Shadowed[object], record: "Record", outside: Outside) -> Json:
        return await self.bring(hook, record, outside)

    return gather
