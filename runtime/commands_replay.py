"""`capfold log replay|what-if|diff|why|pytest`: what a log still tells. Parses, loads, calls, prints and exits.

Exit codes: 0 all is well, 1 it came out differently, 2 a wrong call. Needs click, the extra `cli`.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, ParamSpec

import click

from .errors import LogError, ReplayError
from .log import Log, read_log

if TYPE_CHECKING:
    from ..capabilities.capability import AnyCapability
    from .agent import Agent
    from .log_what_if import WhatIf

P = ParamSpec("P")
_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_PATH = click.Path(exists=True, readable=True, path_type=Path)
_NAME = "MODULE:ATTRIBUTE"
_RUN = click.option("--run", metavar="ID", help="Which run, where FILE has several.")
_ANY_RUN = click.option(
    "--run", metavar="ID", help="Which run, where FILE has several; one of a sub-agent too."
)


def _agent(*, required: bool) -> Callable[[Callable[P, None]], Callable[P, None]]:
    return click.option("--agent", metavar=_NAME, required=required, help="The agent of the run.")


@click.command("replay")
@click.argument("file", type=_FILE)
@_agent(required=True)
@_RUN
def replay_command(file: Path, agent: str, run: str | None) -> None:
    """Fold FILE again with an agent's capabilities; name the first record that comes out differently."""
    from .log_replay import replay  # noqa: PLC0415  # not for --help

    made, log = _loaded_agent(agent), _log(file)
    try:
        found = replay(log, made, run=run)
    except ReplayError as error:
        _fail(f"{file}: {error}")
    click.echo(f"{file}: {len(found.records)} records came out as they are; the run {found.state.status}")


@click.command("what-if")
@click.argument("path", type=_PATH)
@click.option("--capabilities", metavar=_NAME, required=True, help="The other list, or an agent that has it.")
@_agent(required=False)
@click.option(
    "--run", metavar="ID", help="One run alone, which may be of a sub-agent: by a list for that one."
)
def what_if_command(path: Path, capabilities: str, agent: str | None, run: str | None) -> None:
    """Judge the runs of PATH, a log or a folder of them, by another list; exit 1 where a call is newly allowed.

    PATH is searched for *.jsonl. With an agent, its tools are judged, and its own list is the control. Runs of
    sub-agents are taken as they were, and named; `--run` judges one.
    """
    listed = _loaded_list(capabilities)
    made = _loaded_agent(agent) if agent is not None else None
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise click.UsageError(f"no *.jsonl in {path}")
    allowed = unsound = judged = left = 0
    for file in files:
        for one in _judged(file, listed, made, run):
            click.echo(f"{file}: {one}")
            judged += 1
            left += len(one.not_judged)
            allowed += len(one.allowed)
            unsound += one.control is not None and not one.control.empty
    if run is not None and not judged:
        _fail(f"{path}: no log has a run {run!r}")
    rest = f"; runs of sub-agents that were not judged: {left}" if left else ""
    click.echo(f"{allowed} calls newly allowed in {len(files)} logs{rest}")
    sys.exit(1 if allowed or unsound else 0)


def _judged(
    file: Path, listed: "Sequence[AnyCapability]", agent: "Agent[object] | None", only: str | None
) -> "list[WhatIf]":
    from .log_what_if import what_if  # noqa: PLC0415  # not for --help

    log = _log(file)
    started = [one for one in log if one.kind == "run_started"]
    wanted = [one.run for one in started if (only is None and "parent" not in one.facts) or one.run == only]
    runs = dict.fromkeys(wanted)
    try:
        return [what_if(log, listed, agent=agent, run=run) for run in runs]
    except (ReplayError, ValueError) as error:
        _fail(f"{file}: {error}")


@click.command("diff")
@click.argument("a", type=_FILE)
@click.argument("b", type=_FILE)
def diff_command(a: Path, b: Path) -> None:
    """Compare two logs run by run; print the first record in which they part, field by field."""
    from .log_diff import diff  # noqa: PLC0415  # not for --help

    found = diff(_log(a), _log(b))
    click.echo(str(found))
    sys.exit(1 if found else 0)


@click.command("why")
@click.argument("file", type=_FILE)
@click.argument("call")
@_agent(required=True)
@_ANY_RUN
def why_command(file: Path, call: str, agent: str, run: str | None) -> None:
    """Name the smallest set of an agent's capabilities that decided CALL of FILE."""
    from .log_why import why  # noqa: PLC0415  # not for --help
    from .what_if_tree import list_of, place_of  # noqa: PLC0415  # likewise

    made, log = _loaded_agent(agent), _log(file)
    try:
        listed = list_of(place_of(log, run), made)
        click.echo(str(why(log, call, listed, agent=made, run=run)))
    except ReplayError as error:
        _fail(f"{file}: {error}")


@click.command("pytest")
@click.argument("file", type=_FILE)
@click.option(
    "--capabilities", metavar=_NAME, help="The list of the run, or its agent; else what the log says."
)
@_ANY_RUN
def pytest_command(file: Path, capabilities: str | None, run: str | None) -> None:
    """Print a pytest file that fails as the run of FILE did, with the fewest exchanges that do it.

    What the failure needs stands in it: it calls no model, no tool and no gatherer.
    """
    from .dump import load_capabilities  # noqa: PLC0415  # not for --help
    from .loading import is_agent  # noqa: PLC0415  # likewise
    from .pytest_case import case_of  # noqa: PLC0415  # likewise
    from .pytest_file import described, is_own, pytest_file  # noqa: PLC0415  # likewise

    log = _log(file)
    try:
        case = case_of(log, run)
        if capabilities is not None:
            case = case.shrunk(_loaded_list(capabilities))
            if is_agent(capabilities):
                capabilities = f"{capabilities}.capabilities"
        elif is_own(case):
            case = case.shrunk(load_capabilities(described(case), allowed=[]))
    except ReplayError as error:
        _fail(f"{file}: {error}")
    click.echo(pytest_file(case, capabilities), nl=False)


COMMANDS = (replay_command, what_if_command, diff_command, why_command, pytest_command)


def _log(file: Path) -> Log:
    try:
        return read_log(file)
    except LogError as error:
        _fail(f"{file}: {error}")


def _loaded_agent(where: str) -> "Agent[object]":
    from .loading import CannotLoad, load_agent  # noqa: PLC0415  # not for --help

    try:
        return load_agent(where)
    except CannotLoad as error:
        raise click.UsageError(str(error)) from error


def _loaded_list(where: str) -> "Sequence[AnyCapability]":
    from .loading import CannotLoad, load_list  # noqa: PLC0415  # not for --help

    try:
        return load_list(where)
    except CannotLoad as error:
        raise click.UsageError(str(error)) from error


def _fail(message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(1)
