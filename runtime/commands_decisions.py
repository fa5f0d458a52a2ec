"""A person's decisions at the command line: what waits is shown, options, a file or a terminal say what is decided.

What a person sees is rendered from the sealed arguments. Knows nothing of runs, nor whether a decision fits.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
from attrs import fields, frozen

from ..capabilities.frozen import FrozenDict
from .decisions import Answer, ApprovalRequest, Approve, Decision, Deny, Edit
from .errors import CodecError, DecisionError
from .short import printable

P = ParamSpec("P")
T = TypeVar("T")
_LEAST = 8  # characters of a digest that are shown at least
_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_OPTIONS = (
    click.option("--approve", multiple=True, metavar="DIGEST", help="Run this call as shown."),
    click.option("--approve-all", is_flag=True, help="Run all calls that nothing else is said of."),
    click.option(
        "--deny", multiple=True, metavar="DIGEST[=MESSAGE]", help="Do not run it; the model reads MESSAGE."
    ),
    click.option("--answer", multiple=True, metavar="DIGEST=TEXT", help="Do not run it; TEXT is its result."),
    click.option("--edit", multiple=True, metavar="DIGEST=JSON", help="Run it with these arguments."),
    click.option(
        "--decisions", type=_FILE, help="A JSON object: digest -> decision, as from another program."
    ),
)
_UNDECIDED = (
    "nothing is decided, and the run still waits: --approve DIGEST, --approve-all, --deny, --answer, --edit"
)


@frozen
class Said:
    """What the options of `deciding` say."""

    approve: Sequence[str]
    approve_all: bool
    deny: Sequence[str]
    answer: Sequence[str]
    edit: Sequence[str]
    decisions: Path | None


_SAID = tuple(field.name for field in fields(Said))


def deciding(command: Callable[Concatenate[Said, P], T]) -> Callable[..., T]:
    """Give a command the options by which somebody decides; it gets them as one, `Said`, its first argument."""

    @wraps(command)
    def filled(*args: P.args, **options: P.kwargs) -> T:
        said = {name: options.pop(name) for name in _SAID}
        return command(Said(**said), *args, **options)  # type: ignore[arg-type]  # click gives what _OPTIONS say

    for option in reversed(_OPTIONS):
        filled = option(filled)
    return filled


# --- what waits


def show(pending: Sequence[ApprovalRequest]) -> None:
    """Print what waits: each call with its arguments, as they will run, and why somebody asks."""
    for request in pending:
        click.echo(f"{short_digest(request, pending)}  {described(request)}")
        for prompt, by in zip(request.prompts, request.asked_by, strict=True):
            click.echo(f"  {printable(by)}: {printable(prompt)}")


def described(request: ApprovalRequest) -> str:
    """Return a call with its sealed arguments on one line, safe for a terminal."""
    arguments = json.dumps(dict(request.arguments), ensure_ascii=False)
    return printable(f"{request.agent} calls {request.tool} with {arguments}")


def short_digest(request: ApprovalRequest, pending: Sequence[ApprovalRequest]) -> str:
    """Return as much of a digest as tells it from the others."""
    size = _LEAST
    while sum(one.digest.startswith(request.digest[:size]) for one in pending) > 1:
        size += 1
    return request.digest[:size]


# --- what is decided


def chosen(pending: Sequence[ApprovalRequest], said: Said) -> dict[str, Decision] | None:
    """Return what is decided of what waits, by digest: by options, or else at the terminal.

    Where there is no terminal either, what waits is shown, how to decide is told, and None returned.
    """
    given = {**from_file(said.decisions), **decided(pending, said)}
    if said.approve_all:
        given = {**{one.digest: Approve() for one in pending}, **given}
    if given:
        return given
    show(pending)
    if not sys.stdin.isatty():
        click.echo(_UNDECIDED, err=True)
        return None
    return asked(pending)


def from_file(path: Path | None) -> Mapping[str, Decision]:
    """Return the decisions of a file. One that cannot be read as such is a wrong call."""
    if path is None:
        return {}
    from .decisions_json import read_decisions  # noqa: PLC0415  # for those who have a file

    try:
        return read_decisions(path.read_text(encoding="utf-8"))
    except (DecisionError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error


def decided(pending: Sequence[ApprovalRequest], said: Said) -> dict[str, Decision]:
    """Return the decisions of the options, by whole digest. Two of one call, or of none, are a wrong call."""
    found: dict[str, Decision] = {}

    def decide(option: str, start: str, decision: Decision) -> None:
        digest = whole(option, start, pending)
        if digest in found:
            raise click.UsageError(
                f"{option} {start}: this call was decided before; give one decision for each"
            )
        found[digest] = decision

    for start in said.approve:
        decide("--approve", start, Approve())
    for given in said.deny:
        start, _, message = given.partition("=")
        decide("--deny", start, Deny(message))
    for given in said.answer:
        start, text = parts("--answer", given, "TEXT")
        decide("--answer", start, Answer(text))
    for given in said.edit:
        start, text = parts("--edit", given, "JSON")
        decide("--edit", start, edited(text))
    return found


def whole(option: str, start: str, pending: Sequence[ApprovalRequest]) -> str:
    """Return the digest that begins so."""
    fits = [one.digest for one in pending if start and one.digest.startswith(start)]
    if len(fits) != 1:
        known = ", ".join(short_digest(one, pending) for one in pending)
        what = "begins the digests of several calls" if fits else "begins the digest of no call"
        raise click.UsageError(f"{option} {start!r} {what} that waits; there are: {known}")
    return fits[0]


def parts(option: str, given: str, what: str) -> tuple[str, str]:
    """Split DIGEST=VALUE."""
    start, equals, value = given.partition("=")
    if not equals:
        raise click.UsageError(f"{option} takes DIGEST={what}, not {given!r}")
    return start, value


def edited(text: str) -> Edit:
    """Return the arguments of a person, a JSON object."""
    from .codec import from_text  # noqa: PLC0415  # for those who edit

    try:
        return Edit(from_text(text, FrozenDict[object]))
    except CodecError as error:
        raise click.UsageError(f"edited arguments are a JSON object: {error}") from error


def asked(pending: Sequence[ApprovalRequest]) -> dict[str, Decision]:
    """Ask at the terminal for each call. Leaving before the last one decides nothing."""
    found: dict[str, Decision] = {}
    for request in pending:
        digest = short_digest(request, pending)
        choice = click.prompt(
            f"{digest}: run it? [y]es, [n]o, [e]dit, [a]nswer, [q]uit",
            type=click.Choice(["y", "n", "e", "a", "q"]),
            show_choices=False,
        )
        if choice == "q":
            sys.exit(0)
        if choice == "y":
            found[request.digest] = Approve()
        elif choice == "n":
            found[request.digest] = Deny(
                click.prompt("  message to the model", default="", show_default=False)
            )
        elif choice == "a":
            found[request.digest] = Answer(click.prompt("  its result"))
        else:
            found[request.digest] = edited(click.prompt("  arguments, as JSON"))
    return found
