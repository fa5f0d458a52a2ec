"""A small run as entries, for the tests of log, sinks and timeline: approved, restored, rejected, settled."""

import threading
from collections.abc import Sequence

import anyio

from capfold.capabilities.messages import AssistantMessage, ToolMessage, UserMessage, call
from capfold.capabilities.state import Stop
from capfold.capabilities.tools import Tool
from capfold.capabilities.verdict import Outcome
from capfold.runtime.entries import Added, Entry, FromTo, Items
from capfold.runtime.log import Log
from capfold.runtime.sinks import Sink

PAY = Tool("pay", "Pay.", {"type": "object"})
READ = Tool("read", "Read.", {"type": "object"})
TASK = UserMessage("Pay the invoice", at=1.0)
ASKED = AssistantMessage("Paying.", tool_calls=(call("pay", {"amount": 10}, id="c1"),), at=2.0)


def story(run: str = "run-1", *, at: float = 100.0, end: bool = True) -> list[Entry]:
    """Return the entries of one run; `at` is its clock."""
    entries = [
        Entry("run_started", run, 0, at, facts={"prompt": TASK}),
        Entry("step_started", run, 1, at + 1),
        Entry(
            "transition",
            run,
            1,
            at + 2,
            actor="Selector",
            index=0,
            hook="before_model_request",
            changes={
                "tools": FromTo((READ, PAY), (PAY,)),
                "settings": Items({"temperature": 0.5}, ("seed",)),
            },
        ),
        Entry(
            "restored",
            run,
            1,
            at + 3,
            actor="Forger",
            index=1,
            hook="before_model_request",
            restored={"tool_calls": (0, 7)},
        ),
        Entry("model_responded", run, 1, at + 4, actor="model", facts={"response": ASKED}),
        Entry("call_admitted", run, 1, at + 5, call="c1", facts={"tool": "pay", "arguments": {"amount": 10}}),
        Entry(
            "rejected",
            run,
            1,
            at + 6,
            actor="Multiplier",
            call="c1",
            index=2,
            hook="admit_tool_execute",
            rejected={"arguments": ({"amount": 1000}, "sealed once judged")},
        ),
        Entry(
            "tool_settled",
            run,
            1,
            at + 7,
            actor="tool",
            call="c1",
            facts={"outcome": Outcome("succeeded", "paid")},
        ),
        Entry(
            "transition",
            run,
            1,
            at + 8,
            actor="runtime",
            changes={
                "messages": Added((ToolMessage("c1", "pay", "paid", at=at),)),
                "stopped": FromTo(None, Stop("x")),
            },
        ),
    ]
    return [*entries, Entry("run_ended", run, 1, at + 9, facts={"status": "completed"})] if end else entries


def digests(entries: Sequence[Entry]) -> list[str]:
    """Return the digests that a log gives these entries."""
    return [record.digest for record in Log(entries)]


def write_by_threads(sink: Sink) -> None:
    """Write four runs to a sink, each from a thread with an event loop of its own, and close it."""

    def run(name: str) -> None:
        log = Log(story(name))
        for n in range(len(log)):
            anyio.run(sink.write, log[n : n + 1])

    threads = [threading.Thread(target=run, args=(f"run-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    anyio.run(sink.close)
