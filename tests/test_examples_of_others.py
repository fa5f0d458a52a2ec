"""The examples by which other frameworks explain their hooks, written anew: what each was there to show, happens.

HasteKit (agent middleware in Go), AG2 (tool middleware), FastAIAgent (agent middleware), ExAgent (capabilities in
Elixir), pydantic-ai (capabilities, history processors) and LangChain (middleware). Small capabilities of one's own,
as those documents have it; a ready-made one only where theirs is one.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from attrs import evolve, field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Content,
    FromCall,
    Json,
    Message,
    Outside,
    RunState,
    SystemMessage,
    ToolBudget,
    ToolFailed,
    ToolMessage,
    TrimMessages,
    Usage,
    UserMessage,
    call,
    hook,
    is_declared_destructive,
    is_read_only,
    tool,
)
from capfold.runtime import (
    Agent,
    FunctionModel,
    LimitError,
    Limits,
    MemoryStore,
    ModelError,
    ModelRequest,
    RunResult,
    ScriptedModel,
)
from capfold.runtime.scripted_model import Reply

# Any, where it stands here: a capability's slot and an agent's output may be of any type.
Call = CallNext[CallState, CallState]
Request = CallNext[RunState, RunState]


def outcomes(result: RunResult[Any]) -> list[tuple[str, Content]]:
    """Return status and content of each tool call."""
    return [(m.status, m.content) for m in result.messages if isinstance(m, ToolMessage)]


def notes(result: RunResult[Any]) -> list[object]:
    """Return the notes about calls that stand in the log."""
    changes: list[Any] = [
        record.changes["notes"] for record in result.log if record.call and "notes" in record.changes
    ]
    return [change["added"][0] for change in changes]


def shown(model: ScriptedModel, request: int = -1) -> list[Content]:
    """Return the contents of the messages of a request."""
    return [message.content for message in model.requests[request].messages]


class Ledger:
    """A list that capabilities and tools may write to; it is equal to itself only, so that its holder is hashable."""

    def __init__(self) -> None:
        """Nothing is written."""
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append(line)


# --- HasteKit


@tool(destructive=True)
def delete_record(record: str) -> str:
    """Delete a record."""
    return f"{record} is gone"


@tool(read_only=True)
def search(text: str) -> str:
    """Search."""
    return f"nothing about {text}"


@frozen
class ToolPolicy(Capability):
    """Refuses what is declared destructive, unless the application said otherwise."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        allowed = call.run.context.get("allow_destructive") is True
        if allowed or not is_declared_destructive(call.tool):
            return call
        return call.refuse("Destructive tools are not permitted here.")


def test_tool_policy() -> None:
    """The flag comes from the application; a missing or ill-typed one, and one that the model sends, allow nothing."""
    script: list[Reply] = [call("delete_record", {"record": "r1"}), "ok"]
    for context in ({}, {"allow_destructive": "yes"}, {"allow_destructive": 1}):
        agent = Agent("desk", ScriptedModel(script), tools=[delete_record], capabilities=[ToolPolicy()])
        assert ("denied", "Destructive tools are not permitted here.") in outcomes(
            agent.run_sync("Delete r1.", context=context)
        )
    agent = Agent("desk", ScriptedModel(script), tools=[delete_record], capabilities=[ToolPolicy()])
    allowed = agent.run_sync("Delete r1.", context={"allow_destructive": True})
    assert [("succeeded", "r1 is gone")] == outcomes(allowed)


@frozen
class Reminder(Capability):
    """Shows each request a note that is no part of the conversation."""

    note: str

    async def wrap_model_request(self, call_next: Request, state: RunState) -> RunState:
        return await call_next(state.project((*state.view, UserMessage(self.note))))


def test_a_note_on_a_copied_request() -> None:
    """The request has the note, the history does not."""
    model = ScriptedModel(["ok"])
    result = Agent("desk", model, capabilities=[Reminder("Answer in one line.")]).run_sync("Hello.")
    assert ["Hello.", "Answer in one line."] == shown(model)
    assert ["Hello.", "ok"] == [message.content for message in result.messages]


@frozen
class RecentTurns(Capability):
    """Loads the newest messages of a conversation only."""

    last: int

    async def wrap_load_messages(
        self, call_next: CallNext[RunState, Sequence[Message]], state: RunState
    ) -> Sequence[Message]:
        return (await call_next(state))[-self.last :]


def test_wrapped_loading() -> None:
    """What is loaded is wrapped; what is stored stays whole."""
    store, model = MemoryStore(), ScriptedModel(["one", "two", "three"])
    agent = Agent("desk", model, capabilities=[RecentTurns(2)], store=store)
    for prompt in ("1", "2", "3"):
        agent.run_sync(prompt, conversation="ada")
    assert ["2", "two", "3"] == shown(model)


# --- AG2


@frozen
class RequestId(Capability):
    """Gives each call an id of the run's own, which the model neither sees nor fills."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.inject(request_id=f"{call.run.run_id}/{call.id}")


def test_request_id() -> None:
    """The tool gets the id by a hidden parameter; the model is not asked for it and cannot set it."""
    seen = Ledger()

    @tool
    def fetch(url: str, request_id: Annotated[str, FromCall("request_id")]) -> str:
        """Fetch a page."""
        seen.add(request_id)
        return url

    tuned = fetch.with_capabilities(RequestId())
    model = ScriptedModel([call("fetch", {"url": "u"}, id="c1"), "ok"])
    Agent("desk", model, tools=[tuned]).run_sync("Go.", run_id="r1")
    assert ["r1/c1"] == seen.lines
    assert "request_id" not in repr(model.requests[0].tools[0].parameters)


def test_plain_function_around_one_tool() -> None:
    """A hook of one tool is a function; other tools do not go through it."""

    async def redact_ids(call_next: Call, call: CallState) -> CallState:
        done = await call_next(call)
        assert done.outcome is not None
        return done.with_content(re.sub(r"id-\d+", "[id]", str(done.outcome.content)))

    @tool(capabilities=[redact_ids])
    def lookup(name: str) -> str:
        """Look somebody up."""
        return f"{name} is id-17"

    @tool
    def raw(name: str) -> str:
        """Look somebody up."""
        return f"{name} is id-17"

    batch = [call("lookup", {"name": "ada"}), call("raw", {"name": "ada"})]
    result = Agent("desk", ScriptedModel([batch, "ok"]), tools=[lookup, raw]).run_sync("Go.")
    assert [("succeeded", "ada is [id]"), ("succeeded", "ada is id-17")] == outcomes(result)


@frozen
class Audit(Capability):
    """Puts on record what became of each call, refused ones included, and tells a ledger when it runs."""

    ledger: Ledger

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.note(f"{call.name} {call.outcome.status}")

    async def wrap_tool_execute(self, call_next: Call, call: CallState) -> CallState:
        self.ledger.add(f"enter {call.name}")
        try:
            return await call_next(call)
        finally:
            self.ledger.add(f"leave {call.name}")


def test_audit_wrapper() -> None:
    """A tool with the wrapper is another tool; the one without stays as it was; the log has the same from itself."""
    ledger = Ledger()
    audited = evolve(delete_record.with_capabilities(Audit(ledger)), name="audited_delete")
    batch = [call("audited_delete", {"record": "r1"}), call("delete_record", {"record": "r2"})]
    result = Agent("desk", ScriptedModel([batch, "ok"]), tools=[audited, delete_record]).run_sync("Go.")
    assert ["enter audited_delete", "leave audited_delete"] == ledger.lines
    assert ["audited_delete succeeded"] == notes(result)
    assert ["audited_delete", "delete_record"] == [
        r.facts["tool"] for r in result.log if r.kind == "tool_started"
    ]


@frozen
class CallBudget(Capability):
    """Lets so many calls through, over all runs that share the counter in `deps`."""

    limit: int
    counter: str = "calls"

    def needs_deps(self) -> frozenset[str]:
        return frozenset({self.counter})

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        counts = outside.deps
        assert isinstance(counts, dict)
        counts[self.counter] += 1
        return bool(counts[self.counter] <= self.limit)

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call if call.fact(self) is True else call.refuse("The budget is used up.")


def test_call_budget() -> None:
    """The counter lives outside, so the hook stays its settings: calls side by side and later runs count together."""
    budget, deps = CallBudget(3), {"calls": 0}
    for run, expected in enumerate((["succeeded"] * 2, ["succeeded", "denied"], ["denied"] * 2)):
        model = ScriptedModel(
            [[call("search", {"text": f"{run}a"}), call("search", {"text": f"{run}b"})], "ok"]
        )
        result = Agent("desk", model, tools=[search], capabilities=[budget], deps=deps).run_sync("Go.")
        assert expected == sorted((status for status, _ in outcomes(result)), reverse=True)
    assert budget == CallBudget(3)
    assert {"limit": 3, "counter": "calls"}.items() <= budget.describe().config.items()


@frozen
class TidyArguments(Capability):
    """Trims the text arguments of a call, before anybody judges them."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments(
            {k: v.strip() if isinstance(v, str) else v for k, v in call.arguments.items()}
        )


def test_arguments_are_normalized() -> None:
    """The body gets the tidy ones; what the model wrote stands in the history."""
    model = ScriptedModel([call("search", {"text": "  ada "}), "ok"])
    result = Agent("desk", model, tools=[search.with_capabilities(TidyArguments())]).run_sync("Go.")
    assert [("succeeded", "nothing about ada")] == outcomes(result)
    assert '"  ada "' in str(result.messages[1])


# --- FastAIAgent


@frozen
class TokenCounter(Capability[int]):
    """Tallies the tokens of a run."""

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        usage = state.response.usage
        total = usage.total if usage is not None else None
        if total is None:
            return state.note("a response without usage")
        return state.put(self, state.slot(self) + total)


def test_token_counter() -> None:
    """The tally is a slot; it equals what the runtime counts by itself, and what is unknown is not 0."""
    said = [
        AssistantMessage(
            "", tool_calls=(call("search", {"text": "x"}),), usage=Usage(input_tokens=3, output_tokens=2)
        ),
        AssistantMessage("ok", usage=Usage(input_tokens=4, output_tokens=1)),
    ]
    agent = Agent("desk", ScriptedModel(said), tools=[search], capabilities=[TokenCounter()])
    result = agent.run_sync("Go.")
    assert (10, 10) == (result.state.slot_of("TokenCounter"), result.usage.total)


@frozen
class PromptCache(Capability):
    """Answers a request that was answered before; the cache, which many runs share, is in `deps`."""

    def needs_deps(self) -> frozenset[str]:
        return frozenset({"cache"})

    async def wrap_model_request(self, call_next: Request, state: RunState) -> RunState:
        deps = call_next.deps
        assert isinstance(deps, dict)
        cache: dict[tuple[object, ...], AssistantMessage] = deps["cache"]
        key = self.key_of(state)
        if key in cache:
            return state.respond(cache[key])
        done = await call_next(state)
        if done.response is not None and done.response.finish_reason == "stop":
            cache[key] = done.response
        return done

    def key_of(self, state: RunState) -> tuple[object, ...]:
        """Return what decides the answer: all that is sent, and to whom. Records compare without their times."""
        tools = tuple(one.digest for one in state.tools)
        return (state.model and state.model.name, state.settings, state.instructions, tools, state.view)


def test_prompt_cache() -> None:
    """The second run is answered without a request; another prompt is not."""
    model = ScriptedModel(["one", "two"])
    agent = Agent("desk", model, capabilities=[PromptCache()], deps={"cache": {}})
    first, again, other = (agent.run_sync(prompt) for prompt in ("Hello.", "Hello.", "Bye."))
    assert ["one", "one", "two"] == [first.output, again.output, other.output]
    assert (2, 0) == (len(model.requests), again.requests)


@frozen
class ToolCache(Capability[tuple[tuple[str, str], ...]]):
    """Answers a call that succeeded before in this run, by its digest: tool, arguments and injected values."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        kept = call.slot(self)
        stored = dict(kept).get(call.digest)
        return call if stored is None else call.answer(stored)

    def after_tool_execute(self, call: CallState) -> CallState:
        if call.outcome is None or call.outcome.status != "succeeded":
            return call
        return call.put(self, (*call.slot(self), (call.digest, str(call.outcome.content))))


def test_tool_cache() -> None:
    """A failure is not kept, a success is; nested arguments are keys too; another run begins without."""
    ran = Ledger()

    @tool
    def fetch(query: dict[str, list[int]]) -> str:
        """Fetch."""
        ran.add(str(query))
        if len(ran.lines) == 1:
            raise ToolFailed("busy")
        return f"answer {len(ran.lines)}"

    asked = call("fetch", {"query": {"a": [1, 2]}})
    agent = Agent(
        "desk", ScriptedModel([asked, asked, asked, "ok"]), tools=[fetch], capabilities=[ToolCache()]
    )
    result = agent.run_sync("Go.")
    assert [("failed", "busy"), ("succeeded", "answer 2"), ("answered", "answer 2")] == outcomes(result)
    assert 2 == len(ran.lines)


@frozen
class TurnBudget(Capability):
    """Ends a run in good order after so many turns."""

    turns: int

    def before_model_request(self, state: RunState) -> RunState:
        if state.run_step > self.turns:
            return state.stop(f"Stopped after {self.turns} turns.")
        return state


def test_turn_budget() -> None:
    """The run is a result, not an error, and a typed output is not asked for again."""
    model = ScriptedModel([call("search", {"text": str(n)}) for n in range(9)])
    agent = Agent(
        "desk", model, tools=[search], capabilities=[TurnBudget(2)], output_type=int, output_retries=5
    )
    result = agent.run_sync("Go.")
    assert ("stopped", 2) == (result.status, result.requests)
    assert "None" == repr(result.output)
    assert result.stop is not None
    assert "Stopped after 2 turns." == result.stop.message


@frozen
class Redactor(Capability):
    """Masks e-mail addresses in what the model reads and says; the user's own words stay in the history."""

    hold_stream: bool = field(default=True, kw_only=True)

    def before_model_request(self, state: RunState) -> RunState:
        return state.map_view(mask_message)

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        masked = mask_message(state.response)
        assert isinstance(masked, AssistantMessage)
        return state.respond(masked)


def mask_message(message: Message) -> Message:
    """Return a message without e-mail addresses; parts that are no text are left alone."""
    if isinstance(message, SystemMessage) or not isinstance(message.content, str):
        return message
    masked = re.sub(r"[\w.+-]+@[\w-]+\.\w+", "[email]", message.content)
    return message if masked == message.content else evolve(message, content=masked)


def test_redactor() -> None:
    """The request and the reply are masked, what the user said is stored as said."""
    model = ScriptedModel(["Wrote to ada@example.org."])
    result = Agent("desk", model, capabilities=[Redactor()]).run_sync("Write to ada@example.org.")
    assert ["Write to [email]."] == shown(model)
    assert "Wrote to [email]." == result.output
    assert "Write to ada@example.org." == result.messages[0].content


def test_trimming_and_a_tool_budget() -> None:
    """Their two ready-made ones, in one list: a short request, and five calls of six."""
    model = ScriptedModel([*(call("search", {"text": str(n)}) for n in range(6)), "ok"])
    agent = Agent(
        "desk", model, tools=[search], capabilities=[TrimMessages(keep_last=4), ToolBudget(max_calls=5)]
    )
    result = agent.run_sync("Go.")
    assert "stopped" == result.status
    assert ["succeeded"] * 5 + ["not_executed"] == [status for status, _ in outcomes(result)]
    assert 5 == len(shown(model))  # the task, and two exchanges of two messages


def test_stop_by_a_feature_flag() -> None:
    """A flag of the application ends a run before its first request."""

    @hook.before_run
    def switched_off(state: RunState) -> RunState:
        return state.stop("The assistant is off.") if state.context.get("off") is True else state

    result = Agent("desk", "test", capabilities=[switched_off]).run_sync("Hello.", context={"off": True})
    assert ("stopped", "The assistant is off.", 0) == (result.status, result.output, result.requests)


# --- ExAgent


@frozen
class Window(Capability):
    """Shows the newest messages; what an exchange needs stays together."""

    size: int

    def before_model_request(self, state: RunState) -> RunState:
        return state.keep_last(self.size)


def test_window() -> None:
    """The request is short, the history is whole, and the next run has it."""
    model = ScriptedModel(["ok"])
    history: list[Message] = [
        UserMessage("a"),
        AssistantMessage("b"),
        UserMessage("c"),
        AssistantMessage("d"),
    ]
    result = Agent("desk", model, capabilities=[Window(2)]).run_sync("e", messages=history)
    assert ["c", "d", "e"] == shown(model)
    assert 6 == len(result.messages)


@frozen
class Phases(Capability):
    """Reads with a small model first, then acts with the agent's own."""

    small: FunctionModel

    def before_model_request(self, state: RunState) -> RunState:
        if state.run_step > 1:
            return state
        return state.with_model(self.small).with_settings(temperature=0.0).select_tools(is_read_only)


def test_model_and_tools_of_one_request() -> None:
    """A selection holds for one request; the inventory does not bring back what it left out."""
    offered = Ledger()

    def small(request: ModelRequest) -> AssistantMessage:
        offered.add(",".join(one.name for one in request.tools))
        return AssistantMessage("", tool_calls=(call("delete_record", {"record": "r1"}),))

    model = ScriptedModel(["ok"])
    agent = Agent(
        "desk",
        model,
        tools=[search, delete_record],
        capabilities=[Phases(FunctionModel(small))],
        unselected_retries=1,
    )
    result = agent.run_sync("Go.")
    assert ["search"] == offered.lines
    assert ["search", "delete_record"] == [one.name for one in model.requests[0].tools]
    assert ["validation_error"] == [status for status, _ in outcomes(result)]


@frozen
class Accounts(Capability):
    """Says whether the effect of a call happened, whatever its result looks like."""

    ledger: Ledger

    async def wrap_run(self, call_next: Request, state: RunState) -> RunState:
        ended = await call_next(state)
        self.ledger.add(f"{ended.status}: {ended.tool_calls} calls, {ended.requests} requests")
        return ended

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.note(f"{call.name}: effect {call.outcome.effect}, ran {call.ran}")


def test_observing_results_and_the_end() -> None:
    """A refused call did not run; the wrapper sees how the run ended."""
    ledger = Ledger()
    agent = Agent(
        "desk",
        ScriptedModel([[call("delete_record", {"record": "r"}), call("search", {"text": "x"})], "ok"]),
        tools=[search, delete_record],
        capabilities=[ToolPolicy(), Accounts(ledger)],
    )
    result = agent.run_sync("Go.")
    assert ["delete_record: effect no, ran False", "search: effect yes, ran True"] == notes(result)
    assert ["completed: 2 calls, 2 requests"] == ledger.lines


# --- pydantic-ai


@frozen
class PrepareTools(Capability):
    """Offers tools by who asks, with descriptions that say so."""

    def before_model_request(self, state: RunState) -> RunState:
        if state.context.get("role") != "admin":
            return state.select_tools(is_read_only)
        return state.with_tools(
            *(evolve(one, description=f"{one.description} (admin)") for one in state.tools)
        )


def test_prepared_tools() -> None:
    """Fewer tools, or tuned ones."""
    model = ScriptedModel(["ok", "ok"])
    agent = Agent("desk", model, tools=[search, delete_record], capabilities=[PrepareTools()])
    agent.run_sync("Go.")
    agent.run_sync("Go.", context={"role": "admin"})
    assert [["Search."], ["Search. (admin)", "Delete a record. (admin)"]] == [
        [one.description for one in request.tools] for request in model.requests
    ]


@frozen
class OutputCheck(Capability):
    """Has an answer made again that does not pass, as an output validator does."""

    check: Callable[[str], bool]

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        if state.response.tool_calls or self.check(state.response.text):
            return state
        return state.ask_again("Name your source.")


def has_source(text: str) -> bool:
    """Tell whether a source is named."""
    return "[1]" in text


def test_output_validator() -> None:
    """The model is asked again, as often as the agent allows."""
    model = ScriptedModel(["It is so.", "It is so [1]."])
    result = Agent("desk", model, capabilities=[OutputCheck(has_source)], output_retries=1).run_sync("Is it?")
    assert ("It is so [1].", 2) == (result.output, result.requests)
    assert "Name your source." in shown(model)


def test_usage_limits() -> None:
    """Limits are the agent's or the run's, and raise; no hook can raise them."""
    model = ScriptedModel([call("search", {"text": str(n)}) for n in range(9)])
    agent = Agent("desk", model, tools=[search])
    with pytest.raises(LimitError) as caught:
        agent.run_sync("Go.", limits=Limits(requests=2))
    assert caught.value.partial is not None
    assert 2 == caught.value.partial.requests


# --- LangChain


@frozen
class DynamicPrompt(Capability):
    """Writes the instructions by who asks."""

    def before_model_request(self, state: RunState) -> RunState:
        expert = state.context.get("level") == "expert"
        return state.add_instructions("Be technical." if expert else "Use plain words.")


def test_dynamic_prompt() -> None:
    """Instructions are of one request, and no message."""
    model = ScriptedModel(["ok", "ok"])
    agent = Agent("desk", model, instructions="You help.", capabilities=[DynamicPrompt()])
    agent.run_sync("Go.")
    agent.run_sync("Go.", context={"level": "expert"})
    assert ["You help.\n\nUse plain words.", "You help.\n\nBe technical."] == [
        request.instructions for request in model.requests
    ]


@frozen
class RetryModel(Capability):
    """Sends a request again that may succeed later."""

    attempts: int = 3

    async def wrap_model_request(self, call_next: Request, state: RunState) -> RunState:
        for _ in range(self.attempts - 1):
            try:
                return await call_next(state)
            except ModelError as error:
                if not error.retryable:
                    raise
        return await call_next(state)


def test_retry_of_the_model() -> None:
    """Each attempt is charged; what cannot succeed is not sent again."""
    busy = ModelError("rate_limit", "slow down", retryable=True)
    agent = Agent("desk", ScriptedModel([busy, busy, "ok"]), capabilities=[RetryModel()])
    result = agent.run_sync("Go.")
    assert ("ok", 3) == (result.output, result.requests)


@frozen
class TellWhy(Capability):
    """Tells the model in its own words how a tool failed."""

    async def wrap_tool_execute(self, call_next: Call, call: CallState) -> CallState:
        done = await call_next(call)
        assert done.outcome is not None
        if done.outcome.status in {"failed", "unknown"}:
            return done.with_content("The tool is out of order: try another way.")
        return done


def test_errors_of_tools() -> None:
    """A failure comes back as a record, not as an exception; its status stays."""

    @tool(read_only=True)
    def broken() -> str:
        """Fail."""
        raise OSError("disk /dev/sda1")

    agent = Agent("desk", ScriptedModel([call("broken"), "ok"]), tools=[broken], capabilities=[TellWhy()])
    assert [("failed", "The tool is out of order: try another way.")] == outcomes(agent.run_sync("Go."))


def test_early_exit() -> None:
    """A conversation that is too long ends before a request, with words of the application."""

    @hook.before_model_request
    def too_long(state: RunState) -> RunState:
        return state.stop("Let us start anew.") if len(state.messages) > 3 else state

    history: list[Message] = [
        UserMessage("a"),
        AssistantMessage("b"),
        UserMessage("c"),
        AssistantMessage("d"),
    ]
    result = Agent("desk", "test", capabilities=[too_long]).run_sync("e", messages=history)
    assert ("Let us start anew.", 0) == (result.output, result.requests)
