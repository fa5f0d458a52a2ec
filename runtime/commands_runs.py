"""`capfold runs ...`: durable runs in a database, from any process: seen, decided, forked, stopped.

Parses, calls `DurableRuns`, prints. Neither the agent nor a worker has to be here.
"""

import json
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..capabilities.frozen import thaw
from .commands_database import URL, reach
from .commands_decisions import Said, chosen, deciding, described, show
from .commands_resume import runs as in_store
from .decisions import ApprovalRequest
from .errors import DecisionError
from .short import cut, printable, short

if TYPE_CHECKING:
    from .dbos_runs import DurableRuns
    from .dbos_story import DurableRunStory
    from .durable_info import DurableRunInfo, DurableStatus

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_STATUSES = ("queued", "running", "waiting", "completed", "stopped", "failed", "cancelled", "broken")
_HEADS = ("RUN", "STATUS", "CREATED", "WORKER", "WAITS FOR")
_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON.")


class RunsGroup(click.Group):
    """A group whose first word may also be MODULE:ATTRIBUTE, for the runs in that agent's own store."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word means, and what is left for it."""
        word = args[0]
        if word in self.commands or word.startswith("-"):
            return super().resolve_command(ctx, args)
        if ":" in word:
            return in_store.name, in_store, args
        raise click.UsageError(
            f"{word!r} is neither MODULE:ATTRIBUTE, such as shop.desk:agent, nor one of {', '.join(self.commands)}",
            ctx,
        )


@click.group("runs", cls=RunsGroup, subcommand_metavar="COMMAND ... | MODULE:ATTRIBUTE")
def runs() -> None:
    """See and steer durable runs in a database, from any machine.

    COMMAND works on the database that --url, or the variable CAPFOLD_URL, names. `capfold runs MODULE:ATTRIBUTE`
    is for runs that are not durable: it prints the ids of those that wait, suspended, in the store of that agent,
    for `capfold resume` to go on with.
    """


@runs.command("list")
@URL
@click.option("--status", type=click.Choice(_STATUSES), help="Those of a status only.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Of the newest only."
)
@_JSON
def list_command(url: str, status: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001  # click gives every option by its name
    """Print the runs of the database, the newest first, runs below others included."""
    found = reach(url, lambda runs: runs.list(cast("DurableStatus | None", status), limit=limit))
    if as_json:
        _print_json([_as_json(one) for one in found])
        return
    rows = [_row(one) for one in found]
    widths = [max(len(row[at]) for row in (_HEADS, *rows)) for at in range(len(_HEADS))]
    for row in (_HEADS, *rows) if rows else ():
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


@runs.command("show")
@click.argument("run_id")
@URL
@_JSON
def show_command(run_id: str, url: str, as_json: bool) -> None:  # noqa: FBT001  # click gives every option by its name
    """Print one run: its state, what is recorded of each step, what it waits for, or what it came to."""
    found = reach(url, partial(_story, run_id=run_id))
    info = found.info
    if as_json:
        steps = {str(number): list(names) for number, names in found.steps.items()}
        _print_json(
            {
                **_as_json(info),
                "step": info.step,
                "steps": steps,
                "content": thaw(found.content),
                "failure": found.failure,
            }
        )
        return
    told = {
        "run": info.run_id,
        "status": info.status,
        "created": _when(info.created),
        "worker": info.worker,
        "forked from": info.forked_from,
        "failed by": found.failure,
        "result": None
        if found.content is None
        else found.content
        if isinstance(found.content, str)
        else short(found.content),
    }
    for name, value in told.items():
        if value is not None:
            click.echo(f"{name:<12}{printable(value)}")
    for number, names in found.steps.items():
        click.echo(f"{f'step {number}':<12}{printable(', '.join(names))}")
    show(info.pending)


@runs.command("decide")
@click.argument("run_id")
@URL
@deciding
def decide(said: Said, run_id: str, url: str) -> None:
    """Decide what RUN_ID waits for; the worker that has it, or gets it, goes on.

    The beginning of a digest is enough. All calls are decided at once. Without decisions they are asked for at the
    terminal; where there is none, what waits is shown and nothing is done.
    """
    pending = reach(url, partial(_pending, run_id=run_id))
    given = chosen(pending, said)
    if given is None:
        return
    reach(url, lambda runs: runs.decide(run_id, given, now=time.time()))
    click.echo(f"{printable(run_id)} decided")


@runs.command("fork")
@click.argument("run_id")
@click.argument("step", type=click.IntRange(min=1))
@URL
def fork(run_id: str, step: int, url: str) -> None:
    """Start a run that shares what RUN_ID did before STEP, and does the rest anew; print its id.

    It begins when a worker has room for it. `capfold runs show` prints the steps.
    """

    async def forked(runs: "DurableRuns") -> str:
        try:
            return await runs.fork(run_id, step)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    click.echo(printable(reach(url, forked)))


@runs.command("stop")
@click.argument("run_id")
@click.argument("message")
@URL
def stop(run_id: str, message: str, url: str) -> None:
    """Let RUN_ID end with MESSAGE as its result, wherever it is; one that has ended stays as it is."""

    async def stopped(runs: "DurableRuns") -> "DurableRunInfo":
        info = await runs.show(run_id)
        try:
            await runs.stop(run_id, message)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return info

    info = reach(url, stopped)
    active = info.status in {"queued", "running", "waiting"}
    click.echo(f"{printable(run_id)} {'is asked to stop' if active else f'had ended: {info.status}'}")


async def _story(runs: "DurableRuns", *, run_id: str) -> "DurableRunStory":
    from .dbos_story import story  # noqa: PLC0415  # DBOS costs 300 ms, and is an extra

    return await story(runs, run_id)


async def _pending(runs: "DurableRuns", *, run_id: str) -> tuple[ApprovalRequest, ...]:
    info = await runs.show(run_id)
    if info.status != "waiting":
        raise DecisionError(f"run {run_id!r} waits for no decision: it is {info.status}")
    return info.pending


def _row(info: "DurableRunInfo") -> tuple[str, ...]:
    more = cut("; ".join([described(one) for one in info.pending]), 80)
    problem = "" if info.error is None else cut(info.error, 80)
    return tuple(
        [
            printable(cell)
            for cell in (info.run_id, info.status, _when(info.created), info.worker or "-", more or problem)
        ]
    )


def _as_json(info: "DurableRunInfo") -> dict[str, object]:
    from .decisions_json import write_requests  # noqa: PLC0415  # for those who want it

    return {
        "run_id": info.run_id,
        "status": info.status,
        "created": info.created,
        "worker": info.worker,
        "forked_from": info.forked_from,
        "error": info.error,
        "pending": json.loads(write_requests(info.pending)),
    }


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
