"""What the tests of sub-agents share: agents by name whose models count steps, and how a tree of runs is judged.

The models answer by the step of the run that asks, so that runs side by side, and one run twice, each get the
whole script.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from capfold.capabilities import RunState, ToolCall, Usage, call, hook
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, AuditRecord, FunctionModel, Log, ModelProfile, ModelRequest, verify
from capfold.runtime.prices import Price
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import port

USAGE = Usage(input_tokens=600, output_tokens=40, cached_tokens=0, reasoning_tokens=0)
PRICED = ModelProfile(price=Price(input=1_000, output=10_000))  # USAGE costs a dollar
Wait = Callable[[ModelRequest], Awaitable[object]]


def by_step(*replies: Reply, wait: Wait | None = None, **options: Any) -> FunctionModel:
    """Return a model that gives each of its runs these replies, one a step; `wait` comes before each."""

    async def answer(request: ModelRequest) -> Reply:
        if wait is not None:
            await wait(request)
        return replies[request.step - 1]

    options.setdefault("usage", USAGE)
    options.setdefault("profile", PRICED)
    return FunctionModel(answer, **options)


def made(name: str, *replies: Reply, wait: Wait | None = None, **options: Any) -> Agent[Any]:
    """Return an agent of a name that follows a script in each of its runs."""
    options.setdefault("model", by_step(*replies, wait=wait, name=f"{name}-model"))
    options.setdefault("port", port())
    return Agent(name, **options)


def above(child: Agent[Any], *replies: Reply, **options: Any) -> Agent[Any]:
    """Return an agent that may call `child`, and by default does so once."""
    tools = [child.as_tool(f"Ask {child.name}."), *options.pop("tools", ())]
    script = replies or (ask(child.name), "done")
    return made(options.pop("name", "parent"), *script, tools=tools, **options)


def ask(name: str = "child", call_id: str = "c", task: str = "find out") -> ToolCall:
    """Return a call of an agent."""
    return call(name, {"task": task}, id=call_id)


def looks(seen: list[RunState]) -> AnyCapability:
    """Return a capability that keeps the state before each request."""

    @hook.before_model_request
    def look(state: RunState) -> RunState:
        seen.append(state)
        return state

    return look


def by_run(records: Iterable[AuditRecord]) -> dict[str, list[AuditRecord]]:
    """Return run id -> its records, in order of appearance."""
    found: dict[str, list[AuditRecord]] = {}
    for record in records:
        found.setdefault(record.run, []).append(record)
    return found


def check_tree(log: Log, *, ends: Sequence[str] = ("run_ended",)) -> None:
    """Assert that a log holds, that each of its runs ends once, and is answered for by the run that called it."""
    assert verify(log).complete
    runs = by_run(log)
    answered = {
        branch["run"]: branch["head"]
        for record in log
        if record.kind == "tool_settled"
        for branch in _branches(record)
    }
    for run, records in runs.items():
        kinds = [record.kind for record in records]
        assert kinds.count("run_ended") <= 1
        assert kinds[-1] in ends
        above = records[0].facts.get("parent")
        if kinds[-1] == "run_ended" and above is not None and runs[str(above)][-1].kind == "run_ended":
            assert records[-1].digest == answered[run]


def _branches(record: AuditRecord) -> Any:
    return record.facts.get("below", ())


def settled(log: Iterable[AuditRecord], call_id: str = "c") -> Any:
    """Return the facts of the record that settles a call."""
    (record,) = [one for one in log if one.kind == "tool_settled" and one.call == call_id]
    return record.facts
