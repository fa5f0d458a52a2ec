"""A database of durable runs, as a command reaches it: the extra it needs, its URL, and what goes wrong as a sentence.

Knows nothing of what is asked of the runs.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from .commands_resume import fail, told

if TYPE_CHECKING:
    from .dbos_runs import DurableRuns

T = TypeVar("T")
_EXTRA = frozenset({"dbos", "sqlalchemy", "psycopg"})
_NEEDED = "durable runs need DBOS: pip install 'capfold[dbos]'"
URL = click.option(
    "--url",
    envvar="CAPFOLD_URL",
    show_envvar=True,
    required=True,
    metavar="URL",
    help="The database: sqlite:///FILE or postgresql://...",
)


def reach(url: str, work: "Callable[[DurableRuns], Awaitable[T]]") -> T:
    """Return what `work` comes to with the runs of a database; exit with a sentence where that cannot be.

    Exits with 2 for a URL that is wrong, a database without runs, and a run that is not known, with 1 for a server
    that does not answer.
    """
    runs = opened(url)

    async def worked() -> T:
        try:
            await runs.client()
            return await work(runs)
        finally:
            await runs.close()

    return sentences(url, worked)


def sentences(url: str, work: "Callable[[], Awaitable[T]]") -> T:
    """Return what `work`, which needs the database, comes to on asyncio; exit with what it raised, as a sentence."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415  # costs 100 ms, and is an extra

    from .dbos_tables import shown_url  # noqa: PLC0415  # likewise

    try:
        return told(work)
    except DBAPIError as error:
        fail(f"cannot reach {shown_url(url)}: {_cause(error)}")


def opened(url: str) -> "DurableRuns":
    """Return the runs of a database that is there already; exit with 2 and a sentence for what can be none."""
    checked(url)
    from .dbos_runs import DurableRuns  # noqa: PLC0415  # DBOS costs 300 ms, and is an extra
    from .dbos_tables import file_of, shown_url  # noqa: PLC0415  # likewise

    file = file_of(url)
    if file is not None and not file.exists():
        fail(
            f"there is no file {file}, which {shown_url(url)} names: sqlite:///relative, sqlite:////from/root",
            2,
        )
    return DurableRuns(url)


def checked(url: str) -> None:
    """Exit with 2 and a sentence where the extra is missing, or the URL is that of no database of runs."""
    try:
        from .dbos_runs import DurableRuns  # noqa: F401, PLC0415  # likewise: whether it can be had is asked here
        from .dbos_tables import Tables  # noqa: PLC0415  # costs 100 ms, and is an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        fail(_NEEDED, 2)
    try:
        Tables(url)
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from error


def _cause(error: BaseException) -> str:
    """Return what a database said, without the statement and the links that are put around it."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split())
