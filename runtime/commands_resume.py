"""`capfold runs` and `capfold resume`: what waits in an agent's store, and how a run of it goes on.

What is decided goes through `agent.resume`, which alone knows whether it fits.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from .commands_decisions import Said, chosen, deciding, show
from .decisions import ApprovalRequest
from .errors import DecisionError, RunError
from .short import printable

if TYPE_CHECKING:
    from .agent import Agent
    from .result import RunResult
    from .stores import MessageStore

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
T = TypeVar("T")
_AGENT = "MODULE:ATTRIBUTE"


@click.command("runs")
@click.argument("agent", metavar=_AGENT)
def runs(agent: str) -> None:
    """Print the ids of the suspended runs that wait in the store of an agent, one a line: of any agent in it."""
    for run_id in told(partial(within, agent, load(agent), _waiting)):
        click.echo(printable(run_id))


@click.command("resume")
@click.argument("agent", metavar=_AGENT)
@click.argument("run_id")
@deciding
@click.option("--allow-changed", multiple=True, metavar="KEY", help="A capability that may differ by now.")
def resume(said: Said, agent: str, run_id: str, allow_changed: Sequence[str]) -> None:
    """Show what the suspended run RUN_ID waits for, and go on with it once all of that is decided.

    MODULE:ATTRIBUTE is the agent, with its store, as in `shop.desk:agent`, or a function that returns an
    async context of it; modules are looked for in the current folder too. The beginning of a digest is enough.
    Without decisions they are asked for at the terminal; where there is none, what waits is shown and nothing
    is done.
    """
    found = load(agent)
    pending = told(
        partial(within, agent, found, partial(_pending, run_id=run_id, allowed=frozenset(allow_changed)))
    )
    given = chosen(pending, said)
    if given is None:
        return

    async def go_on(made: "Agent[object]", _: "MessageStore") -> "RunResult[object]":
        return await made.resume(run_id, given, allow_changed=allow_changed)

    finish(told(partial(within, agent, found, go_on)))


async def _waiting(_: "Agent[object]", store: "MessageStore") -> tuple[str, ...]:
    return tuple(await store.pending())


async def _pending(
    agent: "Agent[object]", store: "MessageStore", *, run_id: str, allowed: frozenset[str]
) -> tuple[ApprovalRequest, ...]:
    from .snapshot import read_snapshot  # noqa: PLC0415  # not for --help

    state, _ = read_snapshot(await store.held(run_id), agent.setup, allow_changed=allowed)
    return state.pending


def told(work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` comes to on an event loop; exit with what it raised, as a sentence."""
    import anyio  # noqa: PLC0415  # not for --help

    try:
        return anyio.run(work)
    except DecisionError as error:
        fail(f"{error}; nothing was done", 2)
    except RunError as error:
        fail(f"the run failed: {error}")
    except LookupError as error:
        fail(str(error), 2)
    except (ValueError, ConnectionError, TimeoutError) as error:
        fail(
            str(error)
        )  # claimed, of another agent, a store that fails, a server of tools that cannot be reached


def load(where: str) -> object:
    """Return what stands at MODULE:ATTRIBUTE. Nothing is a wrong call."""
    from .loading import CannotLoad, load_object  # noqa: PLC0415  # not for --help

    try:
        return load_object(where)
    except CannotLoad as error:
        raise click.UsageError(str(error)) from error


async def within(
    where: str, found: object, work: "Callable[[Agent[object], MessageStore], Awaitable[T]]"
) -> T:
    """Return what `work` comes to with the agent and its store; see `entered`."""

    async def with_store(agent: "Agent[object]") -> T:
        return await work(agent, _store_of(where, agent))

    return await entered(where, found, with_store)


async def entered(where: str, found: object, work: "Callable[[Agent[object]], Awaitable[T]]") -> T:
    """Return what `work` comes to with the agent, inside its context where `found` makes one.

    An agent whose tools come from a connection exists within that only, so it is made anew for each work.
    """
    from .agent import Agent  # noqa: PLC0415  # not for --help

    if isinstance(found, Agent):
        return await work(found)
    context = found() if callable(found) and not isinstance(found, type) else None
    if not isinstance(context, AbstractAsyncContextManager):
        raise click.UsageError(
            f"{where} is no Agent, but {type(found).__name__}; a function would have to return an async context of one"
        )
    failure: Exception
    async with context as made:
        try:
            if not isinstance(made, Agent):
                raise click.UsageError(f"{where} gives no Agent, but {type(made).__name__}")
            return await work(made)
        except Exception as error:  # noqa: BLE001  # raised below: a task group of the context would make it a group
            failure = error
    raise failure


def _store_of(where: str, agent: "Agent[object]") -> "MessageStore":
    if agent.given.store is None:
        raise click.UsageError(
            f"{where} has no store that could hold a run: Agent(..., store=SQLiteStore(path))"
        )
    return agent.given.store


def finish(result: "RunResult[object]") -> None:
    """Print what the run came to."""
    if result.status == "suspended":
        click.echo(f"{result.state.run_id} waits again:")
        show(result.pending)
        return
    from .codec import to_text  # noqa: PLC0415  # not for --help

    output = result.output if isinstance(result.output, str) else to_text(result.output)
    click.echo(f"{result.state.run_id} {result.status}: {printable(output)}")


def fail(message: str, code: int = 1) -> NoReturn:
    """Exit with a sentence."""
    click.echo(printable(message), err=True)
    sys.exit(code)
