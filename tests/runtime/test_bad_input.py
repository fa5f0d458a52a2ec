"""What is given wrongly is refused at once, by a typed error that names what was given and what would be right."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from capfold.capabilities import (
    CallState,
    Capability,
    Outside,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    Toolkit,
    UserMessage,
    call,
    tool,
)
from capfold.runtime import (
    Agent,
    Approve,
    DecisionError,
    Edit,
    HookError,
    JsonLines,
    Limits,
    LocalPort,
    Permissions,
    RunResult,
    ScriptedModel,
    checked_fold,
    dump_capabilities,
    messages_from_openai,
    messages_to_openai,
    verify,
)


def wrong(value: object) -> Any:
    """Return a value that mypy would refuse, and users give all the same."""
    return value


@tool(destructive=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@frozen
class Loose:
    """An output type that no JSON Schema describes."""

    total: object


@frozen
class Dangling:
    """An output type with an annotation that leads nowhere."""

    total: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # the point


SINK = JsonLines("never-written.jsonl")
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "tools is a number": (lambda: Agent("a", "test", tools=wrong(5)), r"tools must be a list of Tool.* int"),
    "tools is None": (
        lambda: Agent("a", "test", tools=wrong(None)),
        r"tools must be a list of Tool.* NoneType",
    ),
    "tools is one tool": (lambda: Agent("a", "test", tools=wrong(pay)), r"tools must be a list .* not Tool"),
    "toolkit of one tool": (lambda: Toolkit("k", wrong(pay)), r"Toolkit\.tools must be a list .* not Tool"),
    "sinks is a sink": (lambda: Agent("a", "test", sinks=wrong(SINK)), r"sinks must be a list .*JsonLines"),
    "sinks is None": (lambda: Agent("a", "test", sinks=wrong(None)), r"sinks must be a list .*NoneType"),
    "strict is a text": (lambda: Agent("a", "test", strict=wrong("yes")), r"strict is True or False.*'yes'"),
    "port is a number": (lambda: Agent("a", "test", port=wrong(5)), r"port is a Port.* 5"),
    "port is a class": (lambda: Agent("a", "test", port=wrong(LocalPort)), r"port is a Port.*LocalPort'"),
    "output without schema": (lambda: Agent("a", "test", output_type=Loose), r"output_type Loose .* Schema"),
    "output with a lost name": (lambda: Agent("a", "test", output_type=Dangling), r"Dangling .*'Nowhere'"),
    "run: tools": (lambda: Agent("a", "test").run_sync("x", tools=wrong(5)), r"tools must be a list"),
    "run: settings": (lambda: Agent("a", "test").run_sync("x", settings=wrong(5)), r"settings must be a map"),
    "run: run_id": (lambda: Agent("a", "test").run_sync("x", run_id=wrong(5)), r"run_id is a non-empty"),
    "where": (lambda: SelectTools(wrong(5)), r"a set of names or a predicate on Tool, not 5"),
    "permissions: no rules": (lambda: Permissions(wrong(5)), r"rules must be pairs .* not int"),
    "permissions: a dict": (lambda: Permissions(wrong({"pay": "ask"})), r"rules must be pairs .* not dict"),
    "approve always": (lambda: Approve(always=wrong("yes")), r"Approve\.always must be a bool, not str"),
    "log: path": (lambda: JsonLines(wrong(5)), r"JsonLines takes the path of a file, not 5"),
    "log: empty path": (lambda: JsonLines(""), r"JsonLines takes the path of a file, not ''"),
    "log: content": (lambda: JsonLines("x", content=wrong("no")), r"content must be True or False.*'no'"),
    "verify a path": (lambda: verify(wrong("log.jsonl")), r"verify takes a Log, as read_log\(path\)"),
    "dump a number": (lambda: dump_capabilities(wrong(5)), r"must be a list of capabilities, not int"),
    "dump numbers": (lambda: dump_capabilities([wrong(5)]), r"capabilities\[0\] must be a Capability"),
    "to openai": (lambda: messages_to_openai([wrong(5)]), r"messages\[0\] must be a message record, not int"),
    "fold a class": (
        lambda: checked_fold([wrong(ToolBudget)], "admit_tool_execute", CallState(tool=pay)),
        r"capabilities\[0\] is the class ToolBudget: write an instance",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_type_is_a_type_error_that_names_it(case: str) -> None:
    """Nothing is taken for something else, and no Python internals come up from below."""
    make, message = WRONG[case]
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("key", ["runtime", "model", "tool", "person", "permissions"])
def test_capability_cannot_take_another_actors_name(key: str) -> None:
    """A capability named `person` could answer and refuse as a person does, in log and outcomes."""
    with pytest.raises(ValueError, match=f"ToolBudget.key must not be '{key}'"):
        ToolBudget(1, key=key)


@pytest.mark.parametrize("given", [5, None, {"role": "user", "content": "x"}])
def test_openai_history_is_a_list(given: object) -> None:
    """One message is no history."""
    with pytest.raises(ValueError, match=f"a history is a list of messages, not {type(given).__name__}"):
        messages_from_openai(wrong(given))


def test_sink_listed_twice() -> None:
    """It would write each record twice, and the log would not verify."""
    with pytest.raises(ValueError, match=r"sinks\[1\] is listed twice"):
        Agent("a", "test", sinks=[SINK, SINK])


def test_partial_needs_a_name() -> None:
    """Else the model would be offered a tool called `partial`."""
    with pytest.raises(ValueError, match="a partial has no name"):
        tool(functools.partial(lambda: "x"))


def test_frozen_input_says_which_argument() -> None:
    """The path says where in the value, the note which value."""
    with pytest.raises(ValueError, match=r"\$\.a: nan is not JSON") as caught:
        Agent("a", "test", settings={"a": float("nan")})
    assert ["in settings"] == caught.value.__notes__
    with pytest.raises(ValueError, match=r"\$\.amount: nan") as edited:
        Edit({"amount": float("nan")})
    assert ["in Edit.arguments"] == edited.value.__notes__


async def test_run_sync_in_a_loop_says_what_to_write() -> None:
    """The error names `await`, not the event loop's internals."""
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        Agent("a", "test").run_sync("x")


def test_run_sync_inside_a_sync_tool() -> None:
    """A sync tool has a thread of its own, in which no loop runs."""

    @tool
    def ask_another() -> str:
        """Ask another agent."""
        return Agent("inner", "test").run_sync("hello").output

    model = ScriptedModel([call("ask_another", {}), "done"])
    result = Agent("outer", model, tools=[ask_another]).run_sync("go")
    assert "hello" == result.messages[2].content


async def suspended() -> tuple[Agent, RunResult[str]]:
    """Return a run that waits for a person, and its agent."""
    model = ScriptedModel([call("pay", {"amount": 1}), "done"])
    agent = Agent("desk", model, tools=[pay], capabilities=[RequireApproval()], limits=Limits(deadline=30))
    return agent, await agent.run("pay")


@pytest.mark.parametrize("given", [None, b"{}", 5])
async def test_resume_of_what_is_no_run(given: object) -> None:
    """Bytes, a path or None are no snapshot."""
    agent, _ = await suspended()
    with pytest.raises(TypeError, match=f"its run id in the store, not {type(given).__name__}"):
        await agent.resume(wrong(given), {})


async def test_resume_with_a_list_of_decisions() -> None:
    """A decision belongs to a digest; nothing changes when none is given."""
    agent, result = await suspended()
    with pytest.raises(DecisionError, match="mapping from a pending request's digest"):
        await agent.resume(result, wrong([Approve()]))
    done = await agent.resume(result, {result.pending[0].digest: Approve()})
    assert "done" == done.output


async def test_approver_without_a_list_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """The run waits for a person, and says why in its log and by a warning."""
    agent, _ = await suspended()
    agent = Agent("desk", agent.setup.model, tools=[pay], capabilities=[RequireApproval()])
    with caplog.at_level(logging.WARNING, "capfold"):
        model = ScriptedModel([call("pay", {"amount": 1})])
        result = await agent.run("pay", model=model, approver=wrong(lambda asked: Approve()))
    why = "the approver raised DecisionError: an approver returns a list of decisions, one per request, not Approve"
    assert ("suspended", why) == (result.status, result.log[-1].facts["why"])
    assert [f"{why}; the run is suspended"] == caplog.messages
    with pytest.raises(DecisionError, match="list of decisions, one per request, not Approve"):
        await agent.resume(result, approver=wrong(lambda asked: Approve()))


@frozen
class Forgets(Capability):
    """A wrapper that forgets to await."""

    hook: str

    async def wrap_run(self, call_next: Any, run: RunState) -> Any:
        """Forget it around the run."""
        return call_next(run) if self.hook == "wrap_run" else await call_next(run)

    async def wrap_model_request(self, call_next: Any, run: RunState) -> Any:
        """Forget it around the request."""
        return call_next(run) if self.hook == "wrap_model_request" else await call_next(run)


@pytest.mark.parametrize("hook", ["wrap_run", "wrap_model_request"])
async def test_forgotten_await_is_named(hook: str) -> None:
    """A wrapper is no reducer, and did call inward: what is missing is the await."""
    with pytest.raises(
        HookError, match=f"{hook} must return a RunState.* a coroutine: did you forget an await"
    ):
        await Agent("a", "test", capabilities=[Forgets(hook)]).run("x")


@frozen
class AsksNobody(Capability):
    """A gatherer that names a model there is none of."""

    async def gather_before_run(self, state: RunState, outside: Outside) -> Any:
        """Ask it."""
        return (await outside.request([UserMessage("x")], model=wrong("nope"))).content


async def test_gatherers_model_is_checked() -> None:
    """The error says what a model is, not that a string has no `request`."""
    with pytest.raises(HookError, match="unknown model 'nope': write 'test' or 'openai:NAME'"):
        await Agent("a", "test", capabilities=[AsksNobody()]).run("x")


def test_two_sinks_on_one_file(tmp_path: Path) -> None:
    """Their seals would break each other's chain: the agent is not built."""
    path = tmp_path / "log.jsonl"
    with pytest.raises(ValueError, match="two sinks write to"):
        Agent("a", "test", sinks=[JsonLines(path), JsonLines(path)])
