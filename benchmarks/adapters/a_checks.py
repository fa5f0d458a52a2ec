"""The check of one transition alone, many times per run: no participant, `benchmarks.micro` asks for it.

Variants: "loop" is what the loop costs by itself; "identical" gets the record that it gave; "changed" and
"changed, plain" get one whose own slot was written, with the generated and with the plain comparison.
"""

from collections.abc import Mapping

from attrs import frozen

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import Capability
from capfold.capabilities.state import RunState
from capfold.runtime.guards import Edge
from capfold.runtime.transitions import DIFFS, Diff, check, plain_diff

from ..contract import CHECKS, FINAL, Job, Run

HOOKS: tuple[str, ...] = ()
HOOK = "before_model_request"
PLAIN: Mapping[type, Diff] = {RunState: plain_diff, CallState: plain_diff}


@frozen
class Counter(Capability[int]):
    """The owner of the slot that is written."""


def make(job: Job) -> Run:
    """Prepare the two records and return the loop over their check."""
    counter = Counter()
    edge = Edge(counter.key, 0, HOOK)
    before = RunState()
    after = before if job.variant == "identical" else before.put(counter, 1)
    diffs = PLAIN if job.variant == "changed, plain" else DIFFS
    expected = None if after is before else {"slots"}
    _, transition = check(before, after, edge, diffs)
    if (None if transition is None else set(transition.changes)) != expected:
        raise RuntimeError(f"{job.variant}: the check returned {transition}")

    async def run() -> str:
        for _ in range(CHECKS):
            check(before, after, edge, diffs)
        return FINAL

    async def loop() -> str:
        for _ in range(CHECKS):
            pass
        return FINAL

    return loop if job.variant == "loop" else run
