"""What the durable agents of all engines do alike: run, resume, decide, list. Knows no engine."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Generic, Protocol, Self, Unpack

from typing_extensions import TypeVar

from ..capabilities.messages import Content
from .agent import Agent
from .decisions import ApprovalRequest, Decision, Edit
from .durable_edits import check_edits
from .durable_info import DurableRunInfo, DurableStatus
from .durable_order import DurableOptions
from .result import RunResult

Out = TypeVar("Out", default=str)


class Runs(Protocol):
    """The runs of an engine, seen from outside."""

    async def pending(self, run_id: str) -> tuple[ApprovalRequest, ...]:
        """Return what a run waits for."""

    async def decide(self, run_id: str, decisions: Mapping[str, Decision], *, now: float) -> None:
        """Decide it."""

    async def list(self, status: DurableStatus | None = None) -> tuple[DurableRunInfo, ...]:
        """Return the runs."""


class OnEngine(ABC, Generic[Out]):
    """An agent whose runs an engine records; an engine adds how they are opened, started, ended, stopped, forked."""

    _agent: Agent[Out]
    runs: Runs

    @property
    def agent(self) -> Agent[Out]:
        """The agent."""
        return self._agent

    @abstractmethod
    async def open(self) -> Self:
        """Begin to carry runs on in this process; does nothing where that was done."""

    @abstractmethod
    async def close(self, patience: float = 0.0) -> object:
        """Begin no step any more, and leave the runs under way to other processes."""

    @abstractmethod
    async def start(self, prompt: Content | None, **options: Unpack[DurableOptions]) -> str:
        """Start a run and return its id."""

    @abstractmethod
    async def result(self, run_id: str) -> RunResult[Out]:
        """Wait for the end of a run, in whichever process it comes, and return the result."""

    async def __aenter__(self) -> Self:
        """Open it."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def run(self, prompt: Content | None, **options: Unpack[DurableOptions]) -> RunResult[Out]:
        """Start a run, wait for its end and return the result; it waits too where a person has to decide.

        Cancelled, only the wait ends; the run goes on. Raises RunError in its subclasses when the run fails.
        """
        return await self.result(await self.start(prompt, **options))

    async def resume(self, run_id: str, decisions: Mapping[str, Decision]) -> RunResult[Out]:
        """Decide what a run waits for, as `decide` does, and wait for its end, as `result` does."""
        await self.decide(run_id, decisions)
        return await self.result(run_id)

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        """Decide what a run waits for: digest of each pending request -> decision. From any process, days later.

        Raises DecisionError for decisions that do not fit, where somebody has decided otherwise, and for a run that
        does not wait.
        """
        await self.open()
        if any(isinstance(one, Edit) for one in decisions.values()):
            check_edits(self._agent, await self.runs.pending(run_id), decisions)
        await self.runs.decide(run_id, decisions, now=self._agent.given.port.now())

    async def pending(self, run_id: str) -> tuple[ApprovalRequest, ...]:
        """Return what a run waits for, empty where it does not."""
        await self.open()
        return await self.runs.pending(run_id)

    async def list(self, status: DurableStatus | None = None) -> tuple[DurableRunInfo, ...]:
        """Return the runs, the newest first: those of the database, or of the task queue."""
        await self.open()
        return await self.runs.list(status)


def check_agent(agent: object, lease: object, owner: str) -> None:
    """Raise TypeError or ValueError for an agent, or the seconds of a lease, that `owner` cannot work with."""
    if not isinstance(agent, Agent):
        raise TypeError(f"{owner} takes an Agent, not {type(agent).__name__}")
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not lease >= 1:
        raise ValueError(f"lease is a number of seconds of at least 1, not {lease!r:.40}")
