"""`capfold worker`: a process that carries durable runs of an agent on until it is told to end.

Told once, it lets the steps under way come to their records and hands its runs over; told again, it ends at once.
Parses, opens, waits, closes. What carrying on is, `DurableAgent` knows.
"""

import logging
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from .commands_database import checked, sentences
from .commands_resume import entered, load
from .durable_engine import ON_INTERRUPTED
from .short import printable

if TYPE_CHECKING:
    from .agent import Agent
    from .dbos_port import DurableAgent

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SETTINGS = ("url", "version", "lease", "on_interrupted")


@click.command("worker")
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--url",
    envvar="CAPFOLD_URL",
    show_envvar=True,
    metavar="URL",
    help="The database: sqlite:///FILE or postgresql://...",
)
@click.option(
    "--version", default="1", show_default=True, help="Carry on runs of this version of the agent only."
)
@click.option(
    "--lease",
    type=click.FloatRange(min=1),
    default=15.0,
    show_default=True,
    help="Seconds of silence after which others take this process for lost.",
)
@click.option(
    "--on-interrupted",
    type=click.Choice(ON_INTERRUPTED),
    default="unknown",
    show_default=True,
    help="What becomes of a call that a lost process had begun, of a tool that is not declared idempotent.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds that steps under way have to end, once the worker is told to.",
)
def worker(  # noqa: PLR0917  # click gives every option by its name
    agent: str, url: str | None, version: str, lease: float, on_interrupted: str, grace: float
) -> None:
    """Carry durable runs of an agent on: those that were handed over, and those of processes that are lost.

    MODULE:ATTRIBUTE is the agent, as in `shop.desk:agent`, a function that returns an async context of one, or a
    DurableAgent, which has its database and settings with it. Start as many workers as you like, on any machines
    that reach the database. SIGTERM and SIGINT end a worker: no further step is begun, those under way have --grace
    seconds, and its runs go on elsewhere; a second signal ends it at once.
    """
    if url is not None:
        checked(url)
    found = load(agent)
    threads = set(threading.enumerate())
    if _is_durable(found):
        context = click.get_current_context()
        given = [
            name for name in _SETTINGS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        if given:
            option = given[0].replace("_", "-")
            raise click.UsageError(f"--{option}: {agent} is a DurableAgent, which has this setting with it")
        durable: DurableAgent[object] = found  # type: ignore[assignment]  # seen above
        sentences(durable.url, partial(_carry_on, durable, grace))
        _end(threads)
        return
    if url is None:
        raise click.UsageError(f"{agent} is no DurableAgent: --url URL, or CAPFOLD_URL, says which database")
    where = url

    async def with_agent(made: "Agent[object]") -> None:
        from .dbos_port import DurableAgent  # noqa: PLC0415  # DBOS costs 300 ms, and is an extra

        policy: str = on_interrupted
        await _carry_on(
            DurableAgent(made, where, on_interrupted=policy, version=version, lease=lease),  # type: ignore[arg-type]  # one of the choices
            grace,
        )

    sentences(where, partial(entered, agent, found, with_agent))
    _end(threads)


def _is_durable(found: object) -> bool:
    """Tell whether it is a DurableAgent; there is none where DBOS was not imported."""
    module = sys.modules.get(f"{__package__}.dbos_port")
    return module is not None and isinstance(found, module.DurableAgent)


async def _carry_on(durable: "DurableAgent[object]", grace: float) -> None:
    """Carry runs on until a signal comes."""
    import asyncio  # noqa: PLC0415  # costs 22 ms, and this is the only command that needs it

    _log_to_stderr()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(
                number, signal.SIG_DFL
            )  # the next one ends the process, even if the loop is blocked
        told.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)
    await durable.open()
    click.echo(printable(f"worker {durable.executor} carries on runs of {durable.agent.name!r}"))
    try:
        await told.wait()
        click.echo(f"ending: steps under way have {grace:g} s; a second signal ends this at once")
    finally:
        left = await durable.close(grace)
    click.echo(f"ended; {left} run{'' if left == 1 else 's'} handed over")


def _log_to_stderr() -> None:
    """Show what the process says of leases and lost processes."""
    logger = logging.getLogger("capfold")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)


def _end(before: set[threading.Thread]) -> None:
    """End the process, also where a tool's thread is still at work, which nothing can end: its call was given up."""
    left = [one for one in threading.enumerate() if one not in before and not one.daemon]
    for one in left:
        one.join(1.0)
    if any(one.is_alive() for one in left):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
