"""The recorder: the log of a run, and the sinks that it is written to as it grows.

One recorder serves a run and all runs below it, so that there is one log and a sink gets each record once.
Knows nothing of how a run goes on: a sink that fails is told to every run that asks.
"""

from collections.abc import Iterable, Sequence

import anyio
from anyio import get_cancelled_exc_class

from .at_last import to_its_end
from .audit import AuditRecord
from .entries import Entry
from .errors import SinkFailed, message_of
from .log import Log
from .phases import Broken
from .port import is_stray, strayed
from .sinks import JsonLines, Sink


class Recorder:
    """Writes down what happens. `problem`: the failure of a sink that was not best-effort, once there was one."""

    __slots__ = ("_turn", "_written", "log", "problem", "sinks")

    def __init__(self, log: Log, sinks: Sequence[Sink] = ()) -> None:
        """Go on with a log; what it holds already is not written again."""
        self.log = log
        self.sinks = tuple(sinks)
        self.problem: Broken | None = None
        self._written = len(log)
        # Runs side by side write one after the other: a sink gets the records in their order.
        self._turn = anyio.Lock() if self.sinks else None

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries to the log; `flush` writes them to the sinks."""
        self.log.append(entries)

    def replayed(self) -> None:
        """Take note that all there is so far was written to the sinks before, by whoever recorded the run."""
        self._written = len(self.log)

    def adopt(self, records: Iterable[AuditRecord]) -> None:
        """Take over the records of a run below that was driven elsewhere, and written to the sinks there."""
        written = self._written == len(self.log)
        self.log.adopt(records)
        if written:
            self.replayed()

    async def flush(self, run_id: str, step: int, now: float) -> None:
        """Write all new records to every sink; one that fails is dropped, and on record as of this run and step."""
        if self._turn is None:
            return
        cut: BaseException | None = None
        async with self._turn:
            while records := self.log.encoded_since(
                self._written
            ):  # again for the note of a sink that failed
                self._written += len(records)
                for sink in self.sinks:
                    error, cancelled = await _written(sink, records)
                    cut = (
                        cut or cancelled
                    )  # the other sinks get these records first: nobody would write them again
                    if error is not None:
                        self.sinks = tuple([one for one in self.sinks if one is not sink])
                        message = (
                            f"{sink!r} could not write the log: {type(error).__name__}: {message_of(error)}"
                        )
                        facts = {"sink_failed": message}
                        self.log.append([Entry("note", run_id, step, now, facts=facts)])
                        if not sink.best_effort and self.problem is None:
                            self.problem = Broken(SinkFailed(message=message), error)
        if cut is not None:
            raise cut


async def _written(
    sink: Sink, records: Sequence[AuditRecord]
) -> tuple[Exception | None, BaseException | None]:
    """Write to a sink, to its end though the run is cancelled meanwhile; return what it raised, and that."""
    failed: Exception | None = None
    done = False

    async def write() -> None:
        nonlocal done, failed
        try:
            await sink.write(records)
        except get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            failed = strayed(error)
        except Exception as error:  # noqa: BLE001  # a sink is the user's; what it raises ends the run
            failed = error
        done = True

    if (
        type(sink) is JsonLines
    ):  # it never waits, so nothing comes in between; and this is once or twice a step
        await write()
        return failed, None
    cut: BaseException | None = None
    try:
        await to_its_end(write)
    except get_cancelled_exc_class() as error:
        cut = error
    if not done:
        failed = TimeoutError("it did not end in time when the run was cancelled")
    return failed, cut
