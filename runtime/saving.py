"""Saving what a run adds to its conversation: once, through `wrap_save_messages`, whatever the run came to.

A wrapper may pass on other messages, or none at all; both are on record. Knows nothing of how a run ends by it.
"""

from collections.abc import Sequence

from anyio import get_cancelled_exc_class

from ..capabilities.compose import Link
from ..capabilities.frozen import same
from ..capabilities.messages import Message, UserMessage, as_messages
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .chains import active, discard, hook_failed, inactive_links, lend, place_of
from .entries import FromTo
from .errors import InvalidReturn, InvalidView, RunError, StoreFailed
from .onion import Next, Ring, Rule, latched
from .phases import Broken, Save, Saved
from .port import is_stray
from .session import Session
from .storing import store_failed
from .work import Failure

HOOK = "wrap_save_messages"
FIELD = "saved"
# Stands for the prompt of a next run: what is stored must be a history that one can follow.
_NEXT = UserMessage("?")


class Saving(Ring):
    """The wrappers around one save. `outcome` may be asked for at any time: it says what is known by then."""

    def __init__(self, session: Session, effect: Save) -> None:
        """Save nothing yet."""
        super().__init__(session, effect.run)
        assert session.store is not None, "checked when the run was begun"
        self.store = session.store
        self.effect = effect
        self.failures: list[Exception] = []
        self.count = 0
        self.attempted = self.saved = self.done = False

    async def save(self) -> None:
        """Save through the wrappers; never raises but for cancellation."""
        chain, run = self.session.setup.plan.chains[HOOK], self.effect.run
        try:
            links = active(chain.links, inactive_links(chain, run), "")
            await self.layer(links, 0, run, self.effect.messages)
        except Failure as failure:
            self.fail(failure.reason, failure.cause)
        except Exception as error:  # noqa: BLE001  # of the store; the run ends by it
            self.fail(self.not_saved(error), error)  # unless by what broke before
        finally:
            self.over = True
        self.done = True
        if self.failures and not self.saved and self.broken is None:  # a wrapper caught it, and let it be
            self.write("note", facts={"not_saved": self.not_saved(self.failures[-1])})

    def not_saved(self, error: Exception) -> StoreFailed:
        """Return the reason of a run whose messages the store did not take."""
        name = self.effect.conversation.name
        return store_failed(f"this run could not be saved to conversation {name!r}", error, name)

    def outcome(self) -> Saved:
        """Return what became of it."""
        broken, run = self.broken, replace(self.effect.run, notes=self.latched.notes)
        if not self.done and broken is None and not self.saved:
            name = self.effect.conversation.name
            known = "may have been saved" if self.attempted else "was not saved"
            message = f"the run was cut short while it saved: it {known} to conversation {name!r}"
            broken = Broken(StoreFailed(message=message, conversation=name))
            if run.status != "failed":
                run = replace(run, status="cancelled", output=None)
        return Saved(self.session.port.now(), run, self.count, tuple(self.entries), broken)

    async def layer(
        self, links: tuple[Link, ...], i: int, run: RunState, messages: tuple[Message, ...]
    ) -> None:
        """Run wrapper `i` and what is inside it."""
        if i == len(links):
            return await self.leaf(messages)
        link, given = links[i], lend(run)
        passed_on = False

        async def inward(passed: RunState, changed: Sequence[Message]) -> None:
            nonlocal passed_on
            self.check_open()
            if self.saved:
                raise self.fail(self.misuse(link, "called call_next again after it had saved"))
            state = self.edge(link, given, passed, not_ended_again(given))
            inner = self.passed(link, run, messages, changed)
            passed_on = True
            await self.layer(links, i + 1, state, inner)

        try:
            after = await self.enter(link, Next(self.session, inward, self.key(link)), given, messages)
        except RunError as error:
            if self.broken is None:  # of another run: this hook raised it
                raise self.fail(hook_failed(link, run, error), error) from error
            raise
        except Exception as error:
            if any(error is one for one in self.failures):
                raise
            raise self.fail(hook_failed(link, run, error), error) from error
        if after is not None:
            discard(after)
            raise self.fail(self.misuse(link, f"must return None, and returned {type(after).__name__}"))
        if not passed_on:
            self.write_change(link, messages, ())
        return None

    async def leaf(self, messages: tuple[Message, ...]) -> None:
        """Append to the conversation; once that is done, the messages are kept."""
        self.check_open()
        conversation = self.effect.conversation
        assert conversation.expected is not None, "else there is nothing to save to"
        self.attempted = True
        try:
            if messages:
                await self.store.append(conversation.name, messages, conversation.expected)
        except get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            stray = RuntimeError("something it waited for was cancelled")
            self.failures.append(stray)
            raise stray from error
        except Exception as error:
            self.failures.append(error)
            raise
        self.saved, self.count = True, len(messages)

    def passed(
        self, link: Link, run: RunState, messages: tuple[Message, ...], changed: Sequence[Message]
    ) -> tuple[Message, ...]:
        """Check the messages that a wrapper passes on, and write down what it changed."""
        if changed is messages:
            return messages
        try:
            inner = as_messages(changed)
        except TypeError as error:
            raise self.fail(self.misuse(link, f"passed on what is no messages: {error}")) from error
        if same(inner, messages):
            return messages
        problem = view_problem((*run.messages[: run.history_start], *inner, _NEXT))
        if problem is not None:
            message = f"the messages that {link.key}.{HOOK} passed on could not be sent again: {problem}"
            raise self.fail(InvalidView(message=message, field="messages", **place_of(link, run)))
        self.write_change(link, messages, inner)
        return inner

    def write_change(self, link: Link, before: tuple[Message, ...], after: tuple[Message, ...]) -> None:
        """Write down what a wrapper changed in what is saved."""
        self.now = self.session.port.now()
        changes = {FIELD: FromTo(before, after)}
        self.write("transition", actor=link.key, index=link.index, hook=HOOK, changes=changes)

    def misuse(self, link: Link, what: str) -> InvalidReturn:
        """Return the reason of a wrapper that broke the rules of saving."""
        return InvalidReturn(message=f"{link.key}.{HOOK} {what}", **place_of(link, self.run))


def not_ended_again(given: RunState) -> Rule[RunState]:
    """Return the rule that a run which has ended is neither stopped nor failed by what saves it."""

    def rule(record: RunState) -> tuple[str, str] | None:
        if not latched(given, record):
            return None
        name = "stopped" if record.stopped is not given.stopped else "failed"
        return name, "before the run has ended; not to save, do not call call_next; to fail, raise"

    return rule
