"""Who takes part, and whether it is installed.

Must not import any participant: each lives in a process of its own.
"""

from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from attrs import field, frozen


class BenchError(Exception):
    """The benchmarks cannot go on; the message says why and what to do."""


@frozen
class Participant:
    """One column of the table."""

    name: str
    """As shown in the table and given to `--without`."""
    adapter: str
    """Module in `benchmarks.adapters`."""
    package: str
    """Import name that a run with it needs."""
    distribution: str
    """Name of the installed distribution, for the version in the report."""
    peer: bool
    """Whether it counts when the best peer is looked for."""
    imports: str = ""
    """What a program imports to use it, measured by W6; empty: W6 leaves it out."""
    program: str = ""
    """Module in `benchmarks.programs` that imports it and builds an agent, where `imports` is not empty."""
    environment: Mapping[str, str] = field(factory=dict, hash=False)
    """Variables of its processes, over those of the command."""


CAPFOLD = Participant(
    "capfold",
    "a_capfold",
    "capfold",
    "capfold",
    False,
    "import capfold.capabilities, capfold.runtime",
    "p_capfold",
)
HAND = Participant("by hand", "a_hand", "openai", "openai", False)
"""The floor: a bare loop over plain dicts, and the typed `create` of the openai client."""
PARTICIPANTS = (
    CAPFOLD,
    Participant(
        "pydantic-ai",
        "a_pydantic_ai",
        "pydantic_ai",
        "pydantic-ai-slim",
        True,
        "from pydantic_ai import Agent",
        "p_pydantic_ai",
    ),
    Participant(
        "fastaiagent",
        "a_fastaiagent",
        "fastaiagent",
        "fastaiagent",
        True,
        "from fastaiagent import Agent",
        "p_fastaiagent",
        # It traces into a database by default; the file is in the worker's scratch folder.
        {"FASTAIAGENT_TRACE_ENABLED": "0", "FASTAIAGENT_LOCAL_DB": "fastaiagent.db"},
    ),
    HAND,
)


def chosen(without: Collection[str]) -> tuple[Participant, ...]:
    """Return the participants but those named in `without`.

    Raises:
        BenchError: `without` names nobody, or one that was not left out is not installed.
    """
    known = {participant.name for participant in PARTICIPANTS}
    if unknown := sorted(set(without) - known):
        raise BenchError(
            f"--without {unknown[0]}: no such participant; there are: {', '.join(sorted(known))}"
        )
    remaining = tuple(participant for participant in PARTICIPANTS if participant.name not in without)
    missing = [participant.name for participant in remaining if find_spec(participant.package) is None]
    if missing:
        raise BenchError(
            f"{', '.join(missing)}: not installed. Run `pip install capfold[bench]`, "
            f"or leave it out with --without {missing[0]!r}."
        )
    return remaining


def version_of(participant: Participant) -> str:
    """Return the installed version, or "" for a participant that runs from a source tree."""
    try:
        return version(participant.distribution)
    except PackageNotFoundError:
        return ""
