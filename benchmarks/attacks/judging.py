"""What is said of an attack, from what was seen of it. Knows no framework.

An attack is an async function that runs an agent under one bad hook, call or list, and says what it saw. The hook
that does wrong is called `Forger` in every framework, so that a record either names it or does not.
"""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from attrs import frozen

FORGER = "Forger"
Outcome: TypeAlias = Literal["error", "warned", "prevented", "on record", "silent", "not applicable"]


@frozen
class Seen:
    """What an attack came to: whether it took effect, in a few words what, and all that the framework kept of it.

    `kept`: what a user can read afterwards, as text: messages, result, state, log.
    """

    took: bool
    what: str
    kept: str = ""


@frozen
class NotApplicable:
    """Why a framework has no such thing."""

    why: str


Attack: TypeAlias = Callable[[], Awaitable[Seen | NotApplicable]]


@frozen
class Finding:
    """What is said of an attack on one framework, and what it rests on."""

    outcome: Outcome
    what: str


class _Heard(logging.Handler):
    """Keeps what frameworks log of warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def judged(attack: Attack) -> Finding:
    """Run an attack and judge what was seen.

    An exception is an error, whoever it names; a warning or a log line is heard; what took effect is on record when
    what was kept names the forger. What is left is silent.
    """
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            seen = asyncio.run(_awaited(attack))
    except Exception as error:  # noqa: BLE001  # whatever a framework raises is the finding
        return Finding("error", f"{type(error).__name__}: {_first_line(str(error))}")
    finally:
        logging.getLogger().removeHandler(heard)
    if isinstance(seen, NotApplicable):
        return Finding("not applicable", seen.why)
    if not seen.took:
        return Finding("prevented", seen.what)
    if FORGER in seen.kept:
        return Finding("on record", seen.what)
    said = [*heard.said, *(str(warning.message) for warning in warned)]
    return Finding("warned", f"{seen.what}; {_first_line(said[0])}") if said else Finding("silent", seen.what)


async def _awaited(attack: Attack) -> Seen | NotApplicable:
    return await attack()


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 160 else f"{line[:159]}…"
