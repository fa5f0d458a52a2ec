"""From what a caller asks of an agent to a run that is driven to its end."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from attrs import evolve, field, frozen

from ..capabilities.frozen import EMPTY, FrozenDict, freeze_mapping
from ..capabilities.messages import Content, Message
from ..capabilities.tools import check_list
from . import machine
from .building import Given, ToolLike, check_needs, check_options, with_tools
from .control import Control
from .decisions import Approver
from .driver import Driver
from .errors import run_error
from .following import Follower
from .limits import Limits
from .log import Log
from .models import Model, as_model
from .phases import Finish, Suspend
from .recorder import Recorder
from .result import RunResult, result_of
from .session import Session
from .setup import Setup
from .stores import check_name
from .work import MachineState

if TYPE_CHECKING:
    from .storing import Claim


class RunOptions(TypedDict, total=False):
    """What `run`, `run_sync`, `stream` and `start` take beside the prompt; all of it may be left out.

    `context`: JSON for hooks and tools, read-only. `deps`: any object for tools, wrappers and gatherers, in place
    of the agent's. `conversation`: the name of one in the agent's store, which the run continues and adds to.
    `messages`: a history to continue that is stored nowhere. `model`, `limits`, `approver`: in place of the agent's.
    `settings`: over the agent's. `tools`: beside the agent's. `run_id`: a name of your own for the run.
    """

    context: Mapping[str, object]
    deps: object
    conversation: str | None
    messages: Sequence[Message]
    model: Model | str | None
    settings: Mapping[str, object]
    limits: Limits | None
    approver: Approver | None
    tools: Sequence[ToolLike]
    run_id: str | None


def _run_id(instance: object, attribute: object, value: str | None) -> None:
    if value is not None and (type(value) is not str or not value):
        raise TypeError(f"run_id is a non-empty string, not {value!r:.80}")


@frozen(kw_only=True, eq=False)
class Options:
    """The options of one run, with their defaults. TypeError for one that does not exist."""

    context: Mapping[str, object] = EMPTY
    deps: object = None
    conversation: str | None = None
    messages: Sequence[Message] = ()
    model: Model | str | None = None
    settings: Mapping[str, object] = EMPTY
    limits: Limits | None = None
    approver: Approver | None = None
    tools: Sequence[ToolLike] = ()
    run_id: str | None = field(default=None, validator=_run_id)


PLAIN = Options()


class Run(NamedTuple):
    """A run that is about to be driven: its first move, and what it is driven with.

    `claim`: of one that goes on, what takes its snapshot out of the store.
    """

    setup: Setup
    moved: machine.Moved
    log: Log
    deps: object
    approver: Approver | None
    claim: "Claim | None" = None


def begin(setup: Setup, given: Given, prompt: Content | None, options: Options) -> Run:
    """Open a run. Raises TypeError or ValueError for what it cannot be started with; nothing has happened then."""
    if options is not PLAIN:  # which asks for nothing that would have to be looked at
        setup = setup_of(setup, given, options)
        check_kept(given, options)
    deps = given.deps if options.deps is None else options.deps
    approver = given.approver if options.approver is None else options.approver
    check_options(setup.limits, approver)
    check_needs(setup, deps, options.context)
    work, effect = machine.begun(
        setup,
        prompt,
        run_id=options.run_id if options.run_id is not None else given.port.new_id(),
        now=given.port.now(),
        context=options.context,
        messages=options.messages,
        conversation=options.conversation,
    )
    return Run(setup, (work.freeze(), effect, tuple(work.entries)), Log(), deps, approver)


def check_kept(given: Given, options: Options) -> None:
    """Raise TypeError or ValueError for names that no store could keep, and a conversation without a store."""
    if given.store is not None and options.run_id is not None:
        check_name(options.run_id, "run_id")
    if options.conversation is None:
        return
    check_name(options.conversation, "conversation")
    if given.store is None:
        raise ValueError(
            f"conversation={options.conversation!r:.80} needs a store to be kept in: "
            "Agent(..., store=SQLiteStore(path))"
        )


class Driving:
    """A run being driven. `partial` is for who outlives its cancellation."""

    __slots__ = ("claim", "driver", "log")

    def __init__(
        self, run: Run, given: Given, control: Control | None = None, follower: Follower | None = None
    ) -> None:
        """Take what it is driven with."""
        self.log = run.log
        self.claim = run.claim
        session = Session(
            run.setup,
            given.port,
            run.deps,
            Recorder(run.log, given.sinks),
            approver=run.approver,
            control=control,
            follower=follower,
            store=given.store,
        )
        self.driver = Driver(session, run.moved)

    async def drive(self) -> RunResult[object]:
        """Drive the run to its end. Raises RunError when it fails."""
        if self.claim is not None:
            await self.claim.taken(self.driver.close)
        return await self.over(*await self.driver.drive())

    async def over(self, state: MachineState, end: Finish | Suspend) -> RunResult[object]:
        """Return the result of a run that was driven to its end, held in the store where it is suspended.

        Raises RunError for one that failed.
        """
        result = result_of(state, end, self.log)
        store = self.driver.session.store
        if isinstance(end, Suspend) and store is not None:
            from .storing import hold  # noqa: PLC0415  # for runs that are suspended and stored

            await hold(store, result)
        if isinstance(end, Finish) and end.reason is not None:
            raise run_error(end.reason, result, end.cause)
        return result

    def partial(self) -> RunResult[object]:
        """Return what a run has come to that was driven and cut short; its history is closed."""
        state = self.driver.state
        assert state is not None, "a run is driven before it is cut short"
        # Where not even its closing came to an end in time, there is no last effect.
        end = state.effect if isinstance(state.effect, Finish | Suspend) else Finish(state.run)
        return result_of(state, end, self.log)


def setup_of(setup: Setup, given: Given, options: Options) -> Setup:
    """Return the setup with what a run has of its own."""
    changes: dict[str, object] = {}
    if options.model is not None:
        changes["model"] = as_model(options.model)
    if options.settings:
        own = freeze_mapping(options.settings, "settings")
        changes["settings"] = FrozenDict({**setup.settings, **own})
    if options.limits is not None:
        check_options(options.limits, None)
        changes["limits"] = options.limits
    check_list(options.tools, "tools")
    if changes:
        setup = evolve(setup, **changes)  # type: ignore[arg-type]  # fields of Setup, by name
    if options.tools:
        return with_tools(setup, given.capabilities, (*given.tools, *options.tools))
    return setup
