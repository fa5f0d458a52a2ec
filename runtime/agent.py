"""Agent: what users build and run. Everything that can be wrong with it fails when it is built, before any run."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, cast

import anyio
from attrs import evolve
from typing_extensions import TypeVar

from ..capabilities.capability import AnyCapability
from ..capabilities.compose import compose
from ..capabilities.frozen import EMPTY, FrozenDict, freeze_mapping
from ..capabilities.messages import Content, Message
from ..capabilities.scopes import capability_list
from ..capabilities.tools import Tool, check_list
from . import machine
from .approving import decision_list, match
from .building import ToolLike, check_needs, check_options, check_port, check_shapes, with_tools
from .decisions import Approver, Decision
from .driver import Driver
from .errors import DecisionError, run_error
from .limits import Limits
from .log import Log
from .models import Model, as_model
from .output import output_type as make_output_type
from .permissions import Permissions
from .phases import Finish
from .port import LocalPort, Port
from .result import RunResult, result_of
from .session import Session
from .setup import Setup
from .sinks import Sink, sink_list

Out = TypeVar("Out", default=str)
# What an agent puts out that says nothing else; Out cannot tell mypy so.
_STR = cast(Any, str)


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
        check_shapes(
            name=name,
            instructions=instructions,
            audit=audit,
            output_retries=output_retries,
            unselected_retries=unselected_retries,
            permissions=permissions,
            strict=strict,
        )
        check_port(port)
        check_list(tools, "tools")
        check_options(limits, approver)
        members = capability_list(capabilities, "capabilities")
        self._tools = tuple(tools)
        self._capabilities = members
        self._approver = approver
        self._deps = deps
        self._sinks = sink_list(sinks)
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
        if run_id is not None and (type(run_id) is not str or not run_id):
            raise TypeError(f"run_id is a non-empty string, not {run_id!r:.80}")
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
        try:
            anyio.get_cancelled_exc_class()
        except RuntimeError:  # no event loop in this thread
            return anyio.run(run)
        raise RuntimeError("run_sync starts an event loop, and one is running: write `await agent.run(...)`")

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
        from .snapshot import read_snapshot, refuse_changed  # noqa: PLC0415  # most runs never suspend

        if isinstance(suspended, str):
            state, log = read_snapshot(suspended, self.setup, allow_changed=frozenset(allow_changed))
        elif not isinstance(suspended, RunResult):
            raise TypeError(
                f"resume takes a suspended RunResult or the text of its snapshot, not {type(suspended).__name__}"
            )
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
            given = decision_list(await self._port.ask(asked, state.pending, None))
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
            given = freeze_mapping(settings, "settings")
            changes["settings"] = FrozenDict({**self.setup.settings, **given})
        if limits is not None:
            check_options(limits, None)
            changes["limits"] = limits
        check_list(tools, "tools")
        if not changes and not tools:
            return self.setup
        setup = evolve(self.setup, **changes)  # type: ignore[arg-type]  # fields of Setup, by name
        return with_tools(setup, self._capabilities, (*self._tools, *tools)) if tools else setup
