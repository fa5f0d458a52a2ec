"""The mutants: for each check, the same code without it, and the tests that must notice. Knows not how they are run.

A mutant replaces one text, which stands once in its file. `test_mutants.py` sees that it still does.
"""

from collections.abc import Sequence

from attrs import frozen

from tests.mutation import of_calls, of_guards, of_logs, of_runs


@frozen
class Mutant:
    """One check taken out. `tests`: arguments of one or two calls of pytest, in one of which a test must fail."""

    file: str
    check: str
    text: str
    instead: str
    tests: tuple[tuple[str, ...], ...]


def _arguments(tests: str) -> tuple[tuple[str, ...], ...]:
    """Return the arguments of one or two calls: quick paths, and after a plus those that are asked in the end.

    After `-k` stand names of tests or files, any of which may match.
    """
    return tuple(_call(text) for text in tests.split(" + "))


def _call(text: str) -> tuple[str, ...]:
    paths, _, names = text.partition(" -k ")
    return (*paths.split(), *(("-k", names.replace("|", " or ")) if names else ()))


MUTANTS: Sequence[Mutant] = tuple(
    Mutant(file, check, text, instead, _arguments(tests))
    for tables in (of_guards.TABLES, of_calls.TABLES, of_runs.TABLES, of_logs.TABLES)
    for file, (tests, rows) in tables.items()
    for check, text, instead in rows
)
