"""Agent: what users build and run. Everything that can be wrong with it fails when it is built, before any run."""

import functools
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast

import anyio
from typing_extensions import TypeForm, TypeVar

from ..capabilities.capability import AnyCapability
from ..capabilities.compose import compose
from ..capabilities.frozen import EMPTY, freeze_mapping
from ..capabilities.messages import Content
from ..capabilities.scopes import capability_list
from ..capabilities.tools import Tool, check_list
from .building import Given, ToolLike, check_options, check_port, check_shapes, check_store, with_tools
from .decisions import Approver, Decision
from .limits import Limits
from .models import Model, as_model
from .output import output_type as make_output_type
from .permissions import Permissions
from .port import LocalPort, Port
from .prompts import PromptSource
from .result import RunResult
from .runs import PLAIN, Driving, Options, RunOptions, begin
from .setup import Setup
from .sinks import Sink, sink_list
from .stores import MessageStore

if TYPE_CHECKING:
    from .handle import RunHandle
    from .run_stream import RunStream

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
        instructions: str | PromptSource = "",
        tools: Sequence[ToolLike] = (),
        capabilities: Sequence[AnyCapability] = (),
        output_type: TypeForm[Out] = _STR,
        settings: Mapping[str, object] = EMPTY,
        limits: Limits = Limits(),
        output_retries: int = 1,
        unselected_retries: int = 1,
        permissions: Permissions = Permissions(),
        approver: Approver | None = None,
        store: MessageStore | None = None,
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
        check_store(store)
        check_list(tools, "tools")
        check_options(limits, approver)
        members = capability_list(capabilities, "capabilities")
        port = port if port is not None else LocalPort()
        self.given = Given(members, tuple(tools), approver, deps, sink_list(sinks), port, store)
        base = Setup(
            name=name,
            model=as_model(model),
            plan=compose(members),
            settings=freeze_mapping(settings, "settings"),
            prompt=instructions,
            output=make_output_type(output_type),
            limits=limits,
            permissions=permissions,
            output_retries=output_retries,
            unselected_retries=unselected_retries,
            strict=strict,
            audit_all=audit == "all",
        )
        self.setup = with_tools(base, members, self.given.tools)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a finished agent: a run could not know."""
        if hasattr(self, "setup"):
            raise AttributeError(f"an agent does not change: build another one with {name}=...")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Name, model and counts."""
        setup = self.setup
        counts = f"tools={len(setup.inventory)} capabilities={len(self.given.capabilities)}"
        return f"<Agent {setup.name} {setup.model.name} {counts}>"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.setup.name

    @property
    def capabilities(self) -> tuple[AnyCapability, ...]:
        """The agent's list, as it was given."""
        return self.given.capabilities

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The inventory: all tools, toolkits flattened, those of capabilities included."""
        return self.setup.inventory

    async def run(self, prompt: Content | None, **options: Unpack[RunOptions]) -> RunResult[Out]:
        """Run to the end and return the result: completed, stopped or suspended. `RunOptions` says what it takes.

        Raises RunError in its subclasses when the run fails, TypeError or ValueError for what it cannot start with.
        """
        asked = Options(**options) if options else PLAIN
        driving = Driving(begin(self.setup, self.given, prompt, asked), self.given)
        # What `drive` does, whose coroutine each run that waits for its model would keep.
        end = await driving.driver.drive()
        return cast("RunResult[Out]", await driving.over(*end))  # checked against Out's own type

    def run_sync(self, prompt: Content | None, **options: Unpack[RunOptions]) -> RunResult[Out]:
        """Do what `run` does, on an event loop of its own. Raises RuntimeError inside a running one."""
        try:
            anyio.get_cancelled_exc_class()
        except RuntimeError:  # no event loop in this thread
            return anyio.run(functools.partial(self.run, prompt, **options))
        raise RuntimeError("run_sync starts an event loop, and one is running: write `await agent.run(...)`")

    @asynccontextmanager
    async def stream(
        self, prompt: Content | None, **options: Unpack[RunOptions]
    ) -> "AsyncIterator[RunStream[Out]]":
        """Run, and give the events of the run as they come: `async with agent.stream(...) as events`.

        The run goes on as far as its consumer has read, deltas aside. Leaving the block before `Ended` cancels
        it, once, with its history closed. A failure of the run is `Ended.error`; nothing is raised for it.
        """
        from .handle import streamed  # noqa: PLC0415  # for those who stream

        run = begin(self.setup, self.given, prompt, Options(**options))
        block: AbstractAsyncContextManager[RunStream[Out]] = streamed(run, self.given, prompt)
        async with block as events:
            yield events

    @asynccontextmanager
    async def start(
        self, prompt: Content | None, **options: Unpack[RunOptions]
    ) -> "AsyncIterator[RunHandle[Out]]":
        """Run beside the caller: `async with agent.start(...) as handle`, to stop, cancel or await it.

        Leaving the block cancels a run that has not ended. A failure of the run is raised by `handle.result()`.
        """
        from .handle import started  # noqa: PLC0415  # for those who start

        run = begin(self.setup, self.given, prompt, Options(**options))
        block: AbstractAsyncContextManager[RunHandle[Out]] = started(run, self.given, prompt)
        async with block as handle:
            yield handle

    def as_tool(self, description: str, *, name: str | None = None, limits: Limits | None = None) -> Tool:
        """Return a tool that runs this agent on its one parameter, `task`, and answers with its output.

        Its run is on the caller's log and counts against the caller's limits, deadline and permissions; what the
        caller lists as `inherited(...)` stands outside this agent's own capabilities. It gets the caller's context
        and deps, no history. A failure is the outcome of the call; one that waits for a decision suspends the
        caller too. `limits`: in place of this agent's own. `name`: by default the agent's.
        """
        from .subagents import as_tool  # noqa: PLC0415  # for agents that call others

        return as_tool(cast("Agent[object]", self), description, name=name, limits=limits)

    async def resume(
        self,
        suspended: "RunResult[Out] | str",
        decisions: Mapping[str, Decision] | None = None,
        *,
        deps: object = None,
        approver: Approver | None = None,
        allow_changed: Collection[str] = (),
    ) -> RunResult[Out]:
        """Go on with a suspended run: a result, the text of its snapshot, or the run's id in the agent's store.

        `decisions`: digest of each pending request -> decision; without any, the approver is asked again.
        `allow_changed`: keys of capabilities that may differ from the snapshot's. Raises DecisionError for decisions
        that do not fit, CodecError for a text that is no snapshot of this agent, LookupError for an id that the store
        does not have; nothing is done then. With a store a suspended run is resumed once: SnapshotClaimed for a
        second time, whichever of the three it is given as.
        """
        from .resuming import resume  # noqa: PLC0415  # most runs never suspend

        run = await resume(
            self.setup,
            self.given,
            suspended,
            decisions,
            deps=deps,
            approver=approver,
            allowed=frozenset(allow_changed),
        )
        return cast("RunResult[Out]", await Driving(run, self.given).drive())
