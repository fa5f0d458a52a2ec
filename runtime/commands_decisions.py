"""A person's decisions at the command line: what waits is shown, options, a file or a terminal say what is decided.

What a person sees is rendered from the sealed arguments. Knows nothing of runs, nor whether a decision fits.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ..capabilities.frozen import FrozenDict
from .decisions import Answer, ApprovalRequest, Approve, Decision, Deny, Edit
from .errors import CodecError, DecisionError
from .short import printable

_LEAST = 8  # characters of a digest that are shown at least


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


def from_file(path: Path | None) -> Mapping[str, Decision]:
    """Return the decisions of a file. One that cannot be read as such is a wrong call."""
    if path is None:
        return {}
    from .decisions_json import read_decisions  # noqa: PLC0415  # for those who have a file

    try:
        return read_decisions(path.read_text(encoding="utf-8"))
    except (DecisionError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error


def decided(
    pending: Sequence[ApprovalRequest],
    *,
    approve: Sequence[str],
    deny: Sequence[str],
    answer: Sequence[str],
    edit: Sequence[str],
) -> dict[str, Decision]:
    """Return the decisions of the options, by whole digest. Two of one call, or of none, are a wrong call."""
    found: dict[str, Decision] = {}

    def decide(option: str, start: str, decision: Decision) -> None:
        digest = whole(option, start, pending)
        if digest in found:
            raise click.UsageError(
                f"{option} {start}: this call was decided before; give one decision for each"
            )
        found[digest] = decision

    for start in approve:
        decide("--approve", start, Approve())
    for given in deny:
        start, _, message = given.partition("=")
        decide("--deny", start, Deny(message))
    for given in answer:
        start, text = parts("--answer", given, "TEXT")
        decide("--answer", start, Answer(text))
    for given in edit:
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
