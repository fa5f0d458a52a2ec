"""The commands of `capfold`: thin wrappers that parse, call, print and exit. Needs click, the extra `cli`.

Exit codes: 0 all is well, 1 a check failed, 2 a wrong call.
"""

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NoReturn, cast

import click

from .commands_check import check
from .commands_replay import COMMANDS
from .commands_resume import resume
from .commands_runs import runs
from .commands_worker import worker
from .errors import LogError
from .log import ENDS, Log, scan_log, verify
from .rules import rules_json, rules_markdown, rules_mermaid, rules_text
from .timeline import timeline

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


def _one_of(flags: Mapping[str, bool]) -> str | None:
    """Return the flag that was given, None without one; two that exclude each other are a wrong call."""
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in given)} exclude each other: give one")
    return given[0] if given else None


@click.group()
@click.version_option(package_name="capfold")
def capfold() -> None:
    """Agents whose capability list cannot silently corrupt a run."""


capfold.add_command(runs)
capfold.add_command(resume)
capfold.add_command(worker)
capfold.add_command(check)


@capfold.command()
@click.option("--mermaid", is_flag=True, help="The phases as a Mermaid state diagram.")
@click.option("--markdown", is_flag=True, help="All tables as Markdown.")
@click.option("--json", is_flag=True, help="All tables as JSON.")
def rules(**forms: bool) -> None:
    """Print owners, hooks, phases and legal moves."""
    form = _one_of(forms)
    if form == "mermaid":
        click.echo(rules_mermaid(), nl=False)
    elif form == "markdown":
        click.echo(rules_markdown(), nl=False)
    elif form == "json":
        click.echo(json.dumps(rules_json(), indent=2))
    else:
        click.echo(rules_text(), nl=False)


@capfold.group()
def log() -> None:
    """Read audit logs."""


for _command in COMMANDS:
    log.add_command(_command)


@log.command()
@click.argument("file", type=_FILE)
@click.option("--brief", is_flag=True, help="Leave out what happens in every step.")
@click.option("--run", metavar="ID", help="Only this run, and the runs below it.")
def show(file: Path, brief: bool, run: str | None) -> None:  # noqa: FBT001  # click gives every option by its name
    """Print the timeline of FILE: per step and call, who changed what, what was restored or refused.

    The records before a broken one are shown, and the break is named; the chains are for `verify` to check.
    """
    try:
        found, problem = scan_log(file, run=run)
    except LookupError as error:
        _fail(f"{file}: {error}")
    click.echo(timeline(found, brief=brief), nl=False)
    if problem is not None:
        _fail(f"{file}: {problem}")


@log.command("verify")
@click.argument("file", type=_FILE)
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the key of the seals.")
@click.option("--head", metavar="H", help="Where the log should end: a run's last digest, or the last seal.")
def verify_command(file: Path, key_env: str | None, head: str | None) -> None:
    """Check every seal and digest of FILE, and that no run in it is cut off."""
    key = None
    if key_env is not None:
        key = os.environ.get(key_env, "").encode()
        if not key:
            raise click.UsageError(f"the environment variable {key_env} is not set, or empty")
    found, problem = scan_log(file)
    try:
        # What could be read goes first: an earlier record may be the first bad one.
        verified = verify(found, key=key, head=head if problem is None else None)
        if problem is not None:
            raise problem
    except LogError as error:
        _fail(f"{file}: {error}")
    if not verified.complete:
        _fail(f"{file}: record {len(found)} is missing: {_open_runs(found)}")
    sealed = "without a key" if key is None else "with the key"
    click.echo(f"{file}: {verified.records} records hold together, sealed {sealed}; head {verified.head}")


def _open_runs(found: Log) -> str:
    last = {record.run: record.kind for record in found}
    runs = ", ".join(run for run, kind in last.items() if kind not in ENDS)
    return f"the log ends before these runs do: {runs}"


@capfold.command()
@click.option("--model", metavar="openai:NAME", help="A real model; without it, a script plays the model.")
@click.option("--yes", is_flag=True, help="Approve what is asked, without asking.")
@click.option("--no", is_flag=True, help="Deny what is asked, without asking.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for files and logs; else a temporary one.",
)
def demo(model: str | None, folder: Path | None, **decisions: bool) -> None:
    """A person approved 10; what ran? A payments desk, then the same with two bad capabilities."""
    decision = cast(Literal["yes", "no"] | None, _one_of(decisions))
    from .demo import DemoError, run_demo  # noqa: PLC0415  # no other command needs it

    # click takes colors out where there is no terminal; NO_COLOR is the wish to have none there either.
    color = False if os.environ.get("NO_COLOR") else None
    try:
        code = run_demo(model, decision, folder, functools.partial(click.echo, color=color))
    except DemoError as error:
        _fail(f"capfold demo: {error}", 2)
    sys.exit(code)


def _fail(message: str, code: int = 1) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)
