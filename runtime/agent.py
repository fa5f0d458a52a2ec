"""Agent: what users build and run. Everything that can be wrong with it fails here, before any run."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, cast

import anyio
from attrs import evolve
from typing_extensions import TypeVar

from ..capabilities.capability import AnyCapability, state_type
from ..capabilities.compose import Plan, compose
from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze_mapping
from ..capabilities.messages import Content, Message
from ..capabilities.scopes import capability_list
from ..capabilities.signatures import signature_of
from ..capabilities.tools import Placed, SchemaFunction, Tool, Toolkit, place
from ..capabilities.verdict import Problem
from . import machine
from .approving import match
from .arguments import rich_problems
from .decisions import Approver, Decision
from .driver import Driver
from .ending import pending_messages
from .errors import DecisionError, run_error
from .late_codec import input_converter
from .limits import Limits
from .log import Log
from .models import Model, as_model
from .output import output_type as make_output_type
from .permissions import Permissions
from .phases import Finish, Suspend
from .port import LocalPort, Port
from .result import RunResult
from .session import Session
from .setup import Setup
from .sinks import Sink
from .snapshot import read_snapshot, refuse_changed
from .structuring import has_rich
from .work import MachineState

Out = TypeVar("Out", default=str)
# What an agent puts out that says nothing else; Out cannot tell mypy so.
_STR = cast(Any, str)
ToolLike = Tool | Toolkit | Callable[..., object]


class Agent(Generic[Out]):
    """A model with tools under a checked list of capabilities.

    Raises TypeError or ValueError for anything that could not work: a capability class instead of an instance, two
    capabilities of one key, two tools of one name, a tool name that a capability mentions and nobody has, an
    unknown model string. An agent does not change: its fields are read-only.
    """

    def __init__(
        self,
        name: str,
        model: Model | str,
        *,
        instructions: str = "",
        tools: Sequence[ToolLike] = (),
        capabilities: Sequence[AnyCapability] = (),
        output_type: type[Out] = _STR,
        settings: Mapping[str, object] = EMPTY,
        limits: Limits = Limits(),
        output_retries: int = 1,
        unselected_retries: int = 1,
        permissions: Permissions = Permissions(),
        approver: Approver | None = None,
        deps: object = None,
        sinks: Sequence[Sink] = (),
        audit: str = "changes",
        strict: bool = False,
        port: Port | None = None,
    ) -> None:
        """Compose the list and check everything once."""
        if type(name) is not str or not name:
            raise TypeError(f"an agent's name is a non-empty string, not {name!r}")
        if type(instructions) is not str:
            raise TypeError(f"instructions is a string, not {type(instructions).__name__}")
        if audit not in {"changes", "all"}:
            raise ValueError(f"audit is 'changes' or 'all', not {audit!r}")
        for what, count in (("output_retries", output_retries), ("unselected_retries", unselected_retries)):
            if type(count) is not int or count < 0:
                raise ValueError(f"{what} must be an integer of at least 0, not {count!r}")
        if type(permissions) is not Permissions:
            raise TypeError(f"permissions is a Permissions(...), not {type(permissions).__name__}")
        for i, sink in enumerate(sinks):
            if not callable(getattr(sink, "write", None)) or not hasattr(sink, "best_effort"):
                raise TypeError(f"sinks[{i}] is no sink, such as JsonLines(path): {type(sink).__name__}")
        check_options(limits, approver)
        members = capability_list(capabilities, "capabilities")
        self._tools = tuple(tools)
        self._capabilities = members
        self._approver = approver
        self._deps = deps
        self._sinks = tuple(sinks)
        self._port: Port = port if port is not None else LocalPort()
        base = Setup(
            name=name,
            model=as_model(model),
            plan=compose(members),
            settings=freeze_mapping(settings, "settings"),
            instructions=instructions,
            output=make_output_type(output_type),
            limits=limits,
            permissions=permissions,
            output_retries=output_retries,
            unselected_retries=unselected_retries,
            strict=strict,
            audit_all=audit == "all",
        )
        self.setup = with_tools(base, members, self._tools)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a finished agent: a run could not know."""
        if hasattr(self, "setup"):
            raise AttributeError(f"an agent does not change: build another one with {name}=...")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Name, model and counts."""
        setup = self.setup
        counts = f"tools={len(setup.inventory)} capabilities={len(self._capabilities)}"
        return f"<Agent {setup.name} {setup.model.name} {counts}>"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.setup.name

    @property
    def capabilities(self) -> tuple[AnyCapability, ...]:
        """The agent's list, as it was given."""
        return self._capabilities

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The inventory: all tools, toolkits flattened, those of capabilities included."""
        return self.setup.inventory

    async def run(
        self,
        prompt: Content | None,
        *,
        context: Mapping[str, object] = EMPTY,
        deps: object = None,
        messages: Sequence[Message] = (),
        model: Model | str | None = None,
        settings: Mapping[str, object] = EMPTY,
        limits: Limits | None = None,
        approver: Approver | None = None,
        tools: Sequence[ToolLike] = (),
        run_id: str | None = None,
    ) -> RunResult[Out]:
        """Run to the end and return the result: completed, stopped or suspended.

        `messages` is a history to continue; `context` read-only JSON for hooks and tools; `deps` any object for
        tools, wrappers and gatherers. Raises RunError in its subclasses when the run fails.
        """
        setup = self._setup_of(model, settings, limits, tools)
        found = self._deps if deps is None else deps
        check_needs(setup, found, context)
        now = self._port.now()
        moved = machine.start(
            setup,
            prompt,
            run_id=run_id if run_id is not None else self._port.new_id(),
            now=now,
            context=context,
            messages=messages,
        )
        return await self._drive(setup, moved, Log(), found, approver)

    def run_sync(
        self,
        prompt: Content | None,
        *,
        context: Mapping[str, object] = EMPTY,
        deps: object = None,
        messages: Sequence[Message] = (),
        model: Model | str | None = None,
        settings: Mapping[str, object] = EMPTY,
        limits: Limits | None = None,
        approver: Approver | None = None,
        tools: Sequence[ToolLike] = (),
        run_id: str | None = None,
    ) -> RunResult[Out]:
        """Do what `run` does, on an event loop of its own. Raises RuntimeError inside a running one."""
        run = functools.partial(
            self.run,
            prompt,
            context=context,
            deps=deps,
            messages=messages,
            model=model,
            settings=settings,
            limits=limits,
            approver=approver,
            tools=tools,
            run_id=run_id,
        )
        return anyio.run(run)

    async def resume(
        self,
        suspended: "RunResult[Out] | str",
        decisions: Mapping[str, Decision] | None = None,
        *,
        deps: object = None,
        approver: Approver | None = None,
        allow_changed: Collection[str] = (),
    ) -> RunResult[Out]:
        """Go on with a suspended run: a result, or the text of its snapshot.

        `decisions`: digest of each pending request -> decision; without any, the approver is asked again.
        `allow_changed`: keys of capabilities that may differ from the snapshot's. Raises DecisionError for decisions
        that do not fit, CodecError for a text that is no snapshot of this agent; nothing is done then.
        """
        if isinstance(suspended, str):
            state, log = read_snapshot(suspended, self.setup, allow_changed=frozenset(allow_changed))
        else:
            found = suspended.machine
            if found is None or suspended.status != "suspended":
                raise ValueError(f"only a suspended run can be resumed; this one is {suspended.status}")
            if found.setup.name != self.setup.name:
                raise ValueError(f"the run is of agent {found.setup.name!r}; this is {self.setup.name!r}")
            refuse_changed(FrozenDict(found.setup.prints), self.setup.prints, frozenset(allow_changed))
            if allow_changed:
                found = found._replace(setup=self.setup)
            state, log = found, Log.resume(*suspended.log.tails)
        setup = state.setup
        deps = self._deps if deps is None else deps
        check_needs(setup, deps, state.run.context)
        asked = approver if approver is not None else self._approver
        if not decisions and asked is not None:
            given = tuple(await self._port.ask(asked, state.pending, None))
            if len(given) != len(state.pending):
                raise DecisionError(f"{len(state.pending)} decisions are wanted, {len(given)} were given")
            decisions = {
                request.digest: decision for request, decision in zip(state.pending, given, strict=True)
            }
        moved = machine.resume(state, match(state.pending, decisions or {}), self._port.now())
        return await self._drive(setup, moved, log, deps, approver)

    async def _drive(
        self, setup: Setup, moved: machine.Moved, log: Log, deps: object, approver: Approver | None
    ) -> RunResult[Out]:
        check_options(setup.limits, approver)
        asked = approver if approver is not None else self._approver
        driver = Driver(Session(setup, self._port, deps), log, self._sinks, asked)
        state, end = await driver.drive(moved)
        result = result_of(state, end, log)
        if isinstance(end, Finish) and end.reason is not None:
            raise run_error(end.reason, result, end.cause)
        return cast("RunResult[Out]", result)  # the output type was checked against Out's own type

    def _setup_of(
        self,
        model: Model | str | None,
        settings: Mapping[str, object],
        limits: Limits | None,
        tools: Sequence[ToolLike],
    ) -> Setup:
        changes: dict[str, object] = {}
        if model is not None:
            changes["model"] = as_model(model)
        if settings:
            changes["settings"] = freeze_mapping({**self.setup.settings, **settings}, "settings")
        if limits is not None:
            check_options(limits, None)
            changes["limits"] = limits
        if not changes and not tools:
            return self.setup
        setup = evolve(self.setup, **changes)  # type: ignore[arg-type]  # fields of Setup, by name
        return with_tools(setup, self._capabilities, (*self._tools, *tools)) if tools else setup


def with_tools(setup: Setup, capabilities: tuple[AnyCapability, ...], tools: Sequence[ToolLike]) -> Setup:
    """Return the setup with its inventory placed and its plan composed. Raises ValueError for what clashes."""
    bundled: list[ToolLike] = [*tools]
    texts = [setup.instructions] if setup.instructions else []
    bare = compose(capabilities)
    for leaf in bare.agent:
        bundled += leaf.capability.provide_tools()
        text = leaf.capability.provide_instructions()
        if text:
            texts.append(text)
    placed = place(bundled)
    plan = compose(capabilities, placed)
    for member in plan.members.values():
        state_type(type(member))  # a slot whose type cannot be found fails here, not in a run
    names = {item.tool.name for item in placed}
    scoped = {id(member): member for item in placed for member in item.members}  # combinators too
    for member in (*capabilities, *plan.members.values(), *scoped.values()):
        for name in sorted(member.tool_names() - names):
            known = ", ".join(sorted(names)) or "none"
            raise ValueError(
                f"{member.key} mentions the tool {name!r}, which does not exist; there are: {known}"
            )
    return evolve(
        setup,
        plan=plan,
        placed=placed,
        inventory=tuple(item.tool for item in placed),
        by_name=FrozenDict({item.tool.name: item.tool for item in placed}),
        tool_names=tuple(item.tool.name for item in placed),
        needs=needs_of(plan, placed),
        tool_digests=FrozenDict({item.tool.name: item.tool.digest for item in placed}),
        instructions="\n\n".join(texts),
        prints=FrozenDict({key: member.describe().digest for key, member in plan.members.items()}),
        rich=FrozenDict(rich_checks(placed)),
    )


def rich_checks(placed: Sequence[Placed]) -> dict[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]]:
    """Return, per tool whose types say more than its schema, what finds the rest; binds every tool to the codec."""
    found: dict[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]] = {}
    for item in placed:
        function = item.tool.function
        if function is None or isinstance(function, SchemaFunction):
            continue
        signature = signature_of(function)
        if has_rich(signature, input_converter):
            found[item.tool.name] = functools.partial(_rich, signature)
    return found


def _rich(signature: object, arguments: FrozenDict[Json]) -> tuple[Problem, ...]:
    return rich_problems(signature, arguments, input_converter)  # type: ignore[arg-type]  # a Signature, from rich_checks


def check_options(limits: object, approver: object) -> None:
    """Raise TypeError for limits or an approver that are none."""
    if type(limits) is not Limits:
        raise TypeError(f"limits is a Limits(...), not {type(limits).__name__}")
    if approver is not None and not callable(approver):
        raise TypeError(f"an approver is a function of the requests, not {type(approver).__name__}")


def needs_of(plan: Plan, placed: Sequence[Placed]) -> tuple[tuple[str, str, str], ...]:
    """Return what capabilities and tools need to be there when a run starts: (who, where, key)."""
    found = [
        (member.key, "deps", key) for member in plan.members.values() for key in sorted(member.needs_deps())
    ]
    for item in placed:
        function = item.tool.function
        if function is None or isinstance(function, SchemaFunction):
            continue
        found += [
            (f"tool {item.tool.name!r}", parameter.source, parameter.key)
            for parameter in signature_of(function).parameters
            if parameter.required and parameter.source in {"deps", "context"}
        ]
    return tuple(found)


def check_needs(setup: Setup, deps: object, context: Mapping[str, object]) -> None:
    """Raise ValueError when something that capabilities or tools need is not there."""
    for who, where, key in setup.needs:
        if where == "deps" and not has_dep(deps, key):
            raise ValueError(f"{who} needs {key!r} in deps; give run(..., deps={{{key!r}: ...}})")
        if where == "context" and key not in context:
            raise ValueError(f"{who} needs {key!r} in context, and has no default for it")


def has_dep(deps: object, key: str) -> bool:
    """Tell whether deps, a mapping or an object, has a key."""
    return key in deps if isinstance(deps, Mapping) else hasattr(deps, key)


def result_of(state: MachineState, end: Finish | Suspend, log: Log) -> RunResult[object]:
    """Return the result of a run that is over or suspended."""
    run = state.run if isinstance(end, Suspend) else end.run
    if isinstance(end, Suspend):
        return RunResult(
            state=run,
            log=log,
            output=None,
            pending=state.pending,
            messages=pending_messages(state),
            machine=state,
        )
    return RunResult(state=run, log=log, output=run.output, messages=run.messages)
