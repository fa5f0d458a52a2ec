"""A run beside its caller: as a stream of events, or as a handle by which it is stopped from outside.

One machine drives them as it drives `run`; what differs is who is told, and who may ask for an end.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, cast

import anyio
from anyio import get_cancelled_exc_class

from ..capabilities.messages import Content
from .building import Given
from .control import Control
from .errors import RunError
from .events import Ended
from .following import Follower
from .result import RunResult
from .run_stream import RunStream
from .runs import Driving, Run

Out = TypeVar("Out")


class Course(Generic[Out]):
    """A run in a task of its own: its events, and what it comes to once it is `done`.

    Then there is one of three: `result`, that of a cancelled run included; `failure`; or `crash`, an exception that
    is no failure of the run, as an exit that a tool asked for.
    """

    def __init__(self, events: RunStream[Out], driving: Driving) -> None:
        """Start before the first event."""
        self.events = events
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.result: RunResult[Out] | None = None
        self.failure: RunError | None = None
        self.crash: BaseException | None = None
        self._driving = driving

    async def drive(self, block: anyio.CancelScope) -> None:
        """Drive the run to its end; a crash ends the caller's block. Raises nothing but cancellation."""
        try:
            with self.scope:
                self.result = cast("RunResult[Out]", await self._driving.drive())
        except RunError as error:
            self.failure = error
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # `beside` raises it, in the caller's own task
            self.crash = error
            block.cancel()
        finally:
            if self.result is None and self.failure is None and self.crash is None:
                self.result = cast("RunResult[Out]", self._driving.partial())
            if self.crash is None:
                self.events.put(Ended(self.result, self.failure))
            self.events.end()
            self.done.set()


@asynccontextmanager
async def beside(course: Course[Out]) -> AsyncIterator[None]:
    """Drive a run while the block runs. Leaving the block cancels a run that has not ended, and waits for its end.

    What the block raises comes out as it is, and so does a crash of the run.
    """
    left: BaseException | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(course.drive, group.cancel_scope)
        try:
            yield
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # raised below, outside the group, which would wrap it
            left = error
        finally:
            course.events.release()
            course.scope.cancel()
    if course.crash is not None:
        raise course.crash from left
    if left is not None:
        raise left


class RunHandle(Generic[Out]):
    """A run that goes on beside its caller, for as long as the `async with` that gave it.

    `events`: what happens in it, for one reader, then or later; who does not read them pays for keeping them.
    """

    def __init__(self, course: Course[Out], control: Control) -> None:
        """Show a course."""
        self.events = course.events
        self._course = course
        self._control = control

    def __repr__(self) -> str:
        """Whether it has ended."""
        return f"<RunHandle {'ended' if self.ended else 'running'}>"

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self._course.done.is_set()

    async def stop(self, message: str, grace: float = 2.0) -> None:
        """End the run as a result, status "stopped", and wait until it has ended.

        A request under way is dropped. Tools under way are cancelled; one that has not ended `grace` seconds
        later is left alone: its outcome is `unknown`, and its task or thread lives on. A `wrap_run` is waited for
        until it returns. After a first stop, or when the run has ended, this only waits. Raises TypeError or
        ValueError for a message or grace that is none.
        """
        check_stop(message, grace)
        if not self.ended:
            self._control.ask(message, float(grace))
        await self._course.done.wait()

    def cancel(self) -> None:
        """Cancel the run: its history is closed, nothing else of it happens. Not awaited: `result` is."""
        self._course.scope.cancel()

    async def result(self) -> RunResult[Out]:
        """Wait for the end and return the result; that of a run that was cancelled says so in its status.

        Raises RunError when the run failed.
        """
        course = self._course
        await course.done.wait()
        if course.result is None:
            error = course.failure or course.crash
            assert error is not None
            raise error
        return course.result


def check_stop(message: object, grace: object) -> None:
    """Raise TypeError or ValueError for what cannot stop a run."""
    if type(message) is not str:
        raise TypeError(f"stop takes the message that ends the run, not {message!r:.80}")
    if not message:
        raise ValueError("stop takes the message that ends the run, and this one is empty")
    if isinstance(grace, bool) or not isinstance(grace, int | float):
        raise TypeError(f"grace is a number of seconds, not {grace!r:.80}")
    if not 0 <= grace < math.inf:
        raise ValueError(f"grace is a number of seconds, at least 0, not {grace!r:.80}")


@asynccontextmanager
async def streamed(run: Run, given: Given, prompt: Content | None) -> AsyncIterator[RunStream[Out]]:
    """Drive a run beside its consumer, which it waits for, and give its events."""
    events: RunStream[Out] = RunStream(paced=True)
    course = Course(events, Driving(run, given, follower=_follower(events, run, prompt)))
    async with beside(course):
        yield events


@asynccontextmanager
async def started(run: Run, given: Given, prompt: Content | None) -> AsyncIterator[RunHandle[Out]]:
    """Drive a run beside its caller, and give its handle."""
    events: RunStream[Out] = RunStream(paced=False)
    control = Control()
    course = Course(events, Driving(run, given, control, _follower(events, run, prompt)))
    async with beside(course):
        yield RunHandle(course, control)


def _follower(events: RunStream[Out], run: Run, prompt: Content | None) -> Follower:
    return Follower(cast("RunStream[object]", events), run.setup.plan, prompt)
