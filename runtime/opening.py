"""Before a run begins: its conversation is loaded and its instructions resolved, each through its wrappers.

What wrappers return is checked, and what they changed is on record. Knows nothing of what the run does with it.
"""

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, cast

from anyio import get_cancelled_exc_class

from ..capabilities.compose import Link
from ..capabilities.frozen import same
from ..capabilities.messages import Message, as_messages
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .building import joined
from .chains import active, discard, hook_failed, inactive_links, place_of
from .conversation import Conversation
from .entries import Entry, FromTo
from .errors import HookFailed, InvalidReturn, InvalidView, Reason, RunError, message_of
from .onion import Next, Ring
from .phases import Broken, Open, Opened
from .port import is_stray
from .prompts import resolve
from .session import Session
from .stores import MessageStore
from .storing import store_failed
from .work import Failure

V = TypeVar("V")


async def open_run(session: Session, effect: Open) -> Opened:
    """Load and resolve what the run starts with; never raises but for cancellation."""
    run, conversation, instructions = effect.run, effect.conversation, effect.run.instructions
    history: tuple[Message, ...] = ()
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None
    if conversation is not None:
        assert session.store is not None, "checked when the run was begun"
        load = LoadRing(session, run, conversation.name, session.store)
        history = await load.through(())
        conversation = Conversation(conversation.name, load.stored)
        run, entries, broken = load.latches(run), tuple(load.entries), load.broken
    if broken is None and session.setup.unresolved:
        shown = (
            replace(run, messages=(*history, *run.messages), history_start=len(history)) if history else run
        )
        prompt = PromptRing(session, shown)
        own = await prompt.through("")
        instructions = joined(own, session.setup.bundled)
        latched = prompt.latches(shown)
        run = replace(run, stopped=latched.stopped, failed=latched.failed, notes=latched.notes)
        entries, broken = (*entries, *prompt.entries), prompt.broken
    return Opened(session.port.now(), run, history, instructions, conversation, entries, broken)


class ValueRing(Ring, Generic[V]):
    """Wrappers around something that is fetched: what goes inward is the run, what comes out is a value.

    A wrapper may call inward any number of times, or not at all; what is fetched may fail, and it may catch that.
    """

    hook: ClassVar[str]
    wanted: ClassVar[str]
    field: ClassVar[str]

    def __init__(self, session: Session, run: RunState) -> None:
        """Start before anything is fetched."""
        super().__init__(session, run)
        self.failures: list[Exception] = []

    @abstractmethod
    async def fetch(self, run: RunState) -> V:
        """Fetch the value."""

    @abstractmethod
    def failed(self, error: Exception) -> Reason:
        """Return the reason of a run for which it could not be fetched."""

    @abstractmethod
    def read(self, link: Link, given: RunState, value: object) -> V:
        """Return what a wrapper returned, checked. Raises TypeError for what is no such value."""

    @abstractmethod
    def whole(self, value: V) -> object:
        """Return what the value makes of the run's field, for the record."""

    async def through(self, nothing: V) -> V:
        """Fetch through the wrappers; `nothing` when something broke, which `broken` says then."""
        chain, value = self.session.setup.plan.chains[self.hook], nothing
        try:
            value = await self.layer(active(chain.links, inactive_links(chain, self.run), ""), 0, self.run)
            await self.fetched()
        except Failure as failure:
            self.fail(failure.reason, failure.cause)
        except Exception as error:  # noqa: BLE001  # of a store or a prompt source; the run ends by it
            self.fail(self.failed(error), error)  # unless by what broke before
        finally:
            self.over = True
        return nothing if self.broken is not None else value

    async def fetched(self) -> None:
        """See to what must have happened, whatever the wrappers did."""

    async def leaf(self, run: RunState) -> V:
        """Fetch the value, and remember how that failed: no wrapper is to blame for it."""
        self.check_open()
        try:
            return await self.fetch(run)
        except get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            stray = RuntimeError("something it waited for was cancelled")
            self.failures.append(stray)
            raise stray from error
        except Exception as error:
            self.failures.append(error)
            raise

    async def layer(self, links: tuple[Link, ...], i: int, run: RunState) -> V:
        """Run wrapper `i` and what is inside it."""
        if i == len(links):
            return await self.leaf(run)
        link = links[i]
        got: list[V] = []

        async def inward(passed: RunState) -> V:
            inner = await self.layer(links, i + 1, self.edge(link, run, passed))
            got.append(inner)
            return inner

        try:
            after = await self.enter(link, Next(self.session, inward, self.key(link)), run)
        except RunError as error:
            if self.broken is None:  # of another run: this hook raised it
                raise self.fail(hook_failed(link, run, error), error) from error
            raise
        except Exception as error:
            if any(error is one for one in self.failures):
                raise
            raise self.fail(hook_failed(link, run, error), error) from error
        return self.returned(link, run, got, after)

    def returned(self, link: Link, given: RunState, got: list[V], after: object) -> V:
        """Check what a wrapper returned, and write down what it changed."""
        if any(after is inner for inner in got):
            return cast(V, after)
        try:
            value = self.read(link, given, after)
        except TypeError as error:
            discard(after)
            said = "a coroutine: did you forget an await?" if inspect.iscoroutine(after) else str(error)
            message = f"{link.key}.{self.hook} must return {self.wanted}, and returned {said}"
            raise self.fail(InvalidReturn(message=message, **place_of(link, given))) from error
        for inner in got:
            if same(value, inner):  # another object, and no change: what was fetched stays
                return inner
        self.now = self.session.port.now()
        before = None if not got else self.whole(got[-1])
        changes = {self.field: FromTo(before, self.whole(value))}
        self.write("transition", actor=link.key, index=link.index, hook=self.hook, changes=changes)
        return value


class LoadRing(ValueRing[tuple[Message, ...]]):
    """The conversation, through `wrap_load_messages`."""

    hook = "wrap_load_messages"
    wanted = "a sequence of messages"
    field = "messages"

    def __init__(self, session: Session, run: RunState, conversation: str, store: MessageStore) -> None:
        """Load `conversation` from a store."""
        super().__init__(session, run)
        self.conversation = conversation
        self.store = store
        self.stored: int | None = None

    async def fetch(self, run: RunState) -> tuple[Message, ...]:
        """Load it, and count what is stored: the fewest, should a wrapper load twice, since it may use the first."""
        found = as_messages(await self.store.load(self.conversation), "what the store loaded")
        self.stored = len(found) if self.stored is None else min(len(found), self.stored)
        return found

    async def fetched(self) -> None:
        """Load what no wrapper did: without its count, another run's messages could not be told from ours."""
        if self.stored is None and self.broken is None:
            await self.leaf(self.run)

    def failed(self, error: Exception) -> Reason:
        """Return the reason of a run whose conversation could not be loaded."""
        what = f"conversation {self.conversation!r} could not be loaded"
        return store_failed(what, error, self.conversation)

    def read(self, link: Link, given: RunState, value: object) -> tuple[Message, ...]:
        """Return the messages; they must be a history that this run's prompt can follow."""
        messages = _messages(value)
        problem = view_problem((*messages, *self.run.messages))
        if problem is not None:
            message = f"the history that {link.key}.{self.hook} returned cannot be sent: {problem}"
            raise self.fail(InvalidView(message=message, field=self.field, **place_of(link, given)))
        return messages

    def whole(self, value: tuple[Message, ...]) -> object:
        """Return the messages of the run as it begins."""
        return (*value, *self.run.messages)


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, Sequence):
        raise TypeError("None: did you forget to return them?" if value is None else type(value).__name__)
    return as_messages(value, "messages that")


class PromptRing(ValueRing[str]):
    """The agent's own instructions, through `wrap_prompt`."""

    hook = "wrap_prompt"
    wanted = "a string"
    field = "instructions"

    async def fetch(self, run: RunState) -> str:
        """Resolve them: of the run as it is about to start."""
        return await resolve(self.session.setup.prompt, run)

    def failed(self, error: Exception) -> Reason:
        """Return the reason of a run whose prompt source failed."""
        message = f"the prompt source raised {type(error).__name__}: {message_of(error)}"
        return HookFailed(message=message, error=type(error).__name__, field=self.field)

    def read(self, link: Link, given: RunState, value: object) -> str:
        """Return the text."""
        if type(value) is not str:
            raise TypeError("None: did you forget to return it?" if value is None else type(value).__name__)
        return value

    def whole(self, value: str) -> object:
        """Return the whole instructions, those of bundles included."""
        return joined(value, self.session.setup.bundled)
