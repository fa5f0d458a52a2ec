"""What every participant does: the job, the adapter that performs it, the texts it is made of.

Must not know any framework, any process, or the clock.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from attrs import frozen

ARGUMENTS = '{"x": 1}'
"""The arguments of each tool call, as JSON text: what the model sends has to be decoded by everyone."""
FINAL = "done"
"""The last reply of the model and so the output of each run, unless a `variant` says otherwise."""
USER = "hello, run the tool"
"""The prompt of each run."""
TOOL_RESULT = "ok"
"""What the tool `echo` returns."""
CHECKS = 1000
"""How many checks of a transition one run of the adapter `a_checks` makes."""

Run = Callable[[], Awaitable[str]]
"""One whole agent run that was prepared beforehand; returns its output."""
HookKind = Literal["noop", "changing", "absent"]


@frozen
class Job:
    """One piece of work, the same for everyone.

    With an empty `base_url` a stub model answers: `steps` responses that carry `fanout` tool calls each, then
    a final text, `steps + 1` requests in all. With a `base_url` it is one request through the openai client,
    without tools, after `history` earlier messages.
    """

    steps: int = 0
    fanout: int = 1
    hooks: int = 0
    """How many capabilities (middlewares, hooks) are registered, each on every point in `Adapter.HOOKS`."""
    kind: HookKind = "noop"
    """What they do. Adapters without a "changing" form run no-ops instead, which is the lighter work."""
    latency: float = 0.0
    """Seconds that the stub model sleeps before each of its replies; not with a `base_url`."""
    base_url: str = ""
    history: int = 0
    variant: str = ""
    """A word that only the adapter in question understands; its docstring lists them."""


class Adapter(Protocol):
    """What a module in `adapters/` offers."""

    HOOKS: tuple[str, ...]
    """Names of the hook methods that each capability of a job with `hooks` overrides."""

    def make(self, job: Job) -> Run:
        """Prepare what a program would prepare once (agent, tools, client, script) and return the run.

        Stub models find their step from the length of the history they are handed, so a prepared run can be
        repeated at will. The tool is a function called `echo` defined in the adapter's file: the check of a
        job counts its calls by that name.
        """


def history_pairs(count: int) -> list[tuple[Literal["user", "assistant"], str]]:
    """Return `count` earlier messages of about 60 characters, user and assistant in turn."""
    return [
        (
            "user" if index % 2 == 0 else "assistant",
            f"message number {index:06d} with a little bit of ordinary text in it",
        )
        for index in range(count)
    ]
