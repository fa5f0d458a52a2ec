"""The person of the demo, and what stands on the screen. Knows nothing of the job, or of what is promised."""

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from attrs import define, field

from .decisions import ApprovalRequest, Approve, Decision, Deny
from .demo_desk import Payment
from .demo_report import payment_of
from .short import printable

Echo: TypeAlias = Callable[[str], object]
Choice: TypeAlias = Literal["yes", "no"]
BOLD, RED, GREEN, YELLOW = 1, 31, 32, 33


@define
class Person:
    """Who decides: is shown each request, and remembers it. `choice`: the decision, None = ask for it."""

    choice: Choice | None
    echo: Echo
    shown: list[Payment] = field(factory=list)
    approved: list[Payment] = field(factory=list)

    async def decide(self, requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
        """Be the approver of an agent.

        Async though it blocks: nothing else goes on meanwhile, and a worker thread that waits for input would
        outlive Ctrl-C.
        """
        return [self._one(request) for request in requests]

    def _one(self, request: ApprovalRequest) -> Decision:
        payment = payment_of(request.arguments)
        self.shown.append(payment)
        self.echo(painted("  A PERSON IS ASKED  ", BOLD) + printable(" ".join(request.prompts)))
        if self.choice is None:
            yes = asked("  Pay this? [y/N] ")
        else:
            yes = self.choice == "yes"
            self.echo(f"  and says: {self.choice}")
        if not yes:
            return Deny()
        self.approved.append(payment)
        return Approve()


def asked(question: str) -> bool:
    """Ask at the terminal; whatever is not a yes, no answer included, is a no."""
    # An event loop takes Ctrl-C for itself, and would act on it only after the answer.
    loops_own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        return False
    finally:
        signal.signal(signal.SIGINT, loops_own)


def painted(text: str, color: int) -> str:
    """Return the text in a color; `echo` takes it out again where there is no terminal."""
    return f"\x1b[{color}m{text}\x1b[0m"


class _Told(logging.Handler):
    """Prints warnings between the other lines."""

    def __init__(self, echo: Echo) -> None:
        super().__init__(logging.WARNING)
        self.echo = echo

    def emit(self, record: logging.LogRecord) -> None:
        self.echo(f"  warning: {printable(record.getMessage())}")


@contextmanager
def warnings_told(echo: Echo) -> Iterator[None]:
    """Print what capfold warns of, where it would else go to stderr."""
    handler = _Told(echo)
    logger = logging.getLogger("capfold")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
