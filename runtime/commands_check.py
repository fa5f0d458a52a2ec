"""`capfold check module:attribute`: the laws on the command line. Parses, prints and exits.

Needs click, the extra `cli`, and Hypothesis, the extra `testing`, which is imported when something is checked.
"""

import json
import sys
from collections.abc import Sequence
from secrets import randbelow
from typing import TYPE_CHECKING, NoReturn

import click
from attrs import frozen

from ..capabilities.capability import AnyCapability, Capability
from .agent import Agent
from .building import ToolLike
from .loading import CannotLoad, load_object

if TYPE_CHECKING:
    from .laws_results import Results

_COLUMNS = 4  # capabilities beside each other in the table
_WIDE = 18
_SEEDS = 1 << 32


@frozen
class Target:
    """What is to be checked: capabilities, those of them that are one list, and the tools they are used with."""

    capabilities: tuple[AnyCapability, ...]
    listed: tuple[AnyCapability, ...]
    tools: tuple[ToolLike, ...] | None = None


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--examples", type=click.IntRange(min=1), default=100, show_default=True, help="Runs to try.")
@click.option("--seed", type=click.IntRange(min=0), help="Try the runs that another call did: it printed it.")
@click.option("--json", "as_json", is_flag=True, help="The results as JSON.")
def check(target: str, examples: int, seed: int | None, as_json: bool) -> None:  # noqa: FBT001  # click gives every option by its name
    """Check the laws on a capability, a list of them, or all that an agent has.

    MODULE is imported from the present folder, or from where Python finds it. The exit code is 1 when a law is broken;
    what capabilities of a list do to each other is shown, and is no failure.
    """
    try:
        found = load(target)
    except CannotLoad as error:
        _wrong(str(error))
    try:
        from .laws_results import results_of  # noqa: PLC0415  # Hypothesis costs 100 ms, and is an extra
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        _wrong("the laws need Hypothesis: pip install capfold[testing]")
    hidden = as_json or not sys.stderr.isatty()
    try:
        with click.progressbar(found.capabilities, label="checking", file=sys.stderr, hidden=hidden) as bar:
            results = results_of(
                bar,
                found.listed,
                found.tools,
                examples=examples,
                seed=randbelow(_SEEDS) if seed is None else seed,
            )
    except (TypeError, ValueError) as error:
        _wrong(f"{target}: {error}")
    click.echo(json.dumps(results.to_json(), indent=2) if as_json else text_of(results))
    sys.exit(1 if results.violations else 0)


def load(target: str) -> Target:
    """Return what is to be checked. Raises CannotLoad, also for what is neither capability nor list nor agent."""
    return _target(target, load_object(target))


def _target(target: str, found: object) -> Target:
    if isinstance(found, Capability):
        return Target((found,), (found,))
    if isinstance(found, Agent):
        scoped = {member.key: member for item in found.setup.placed for member in item.members}
        own = found.given.capabilities
        every = {**{cap.key: cap for cap in own}, **scoped}
        if not every:
            raise CannotLoad(f"{target} is an agent without capabilities: there is nothing to check")
        return Target(tuple(every.values()), own, found.given.tools)
    if isinstance(found, list | tuple) and found and all(isinstance(item, Capability) for item in found):
        return Target(tuple(found), tuple(found))
    hint = f"; {found.__name__} is a class: check an instance of it" if isinstance(found, type) else ""
    raise CannotLoad(
        f"{target} is neither a capability nor a list of them nor an agent, but {type(found).__name__}{hint}"
    )


def text_of(results: "Results") -> str:
    """Return the table of laws and capabilities, then each violation, then what was found between capabilities."""
    keys = list(results.table)
    parts = [_table(results, keys[i : i + _COLUMNS]) for i in range(0, len(keys), _COLUMNS)]
    parts += [str(violation) for violation in results.violations]
    if results.report is not None:
        parts.append(str(results.report))
    count = len(results.violations)
    verdict = f"{count} broken" if count else "no law was seen broken"
    parts.append(f"{verdict}; {results.examples} runs for each search, --seed {results.seed}")
    return "\n\n".join(parts)


def _table(results: "Results", keys: Sequence[str]) -> str:
    rows = [("law", *(key if len(key) <= _WIDE else f"{key[: _WIDE - 3]}..." for key in keys))]
    laws = next(iter(results.table.values()))
    rows += [(law, *(results.table[key][law] for key in keys)) for law in laws]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _wrong(message: str) -> NoReturn:
    click.echo(f"capfold check: {message}", err=True)
    sys.exit(2)
