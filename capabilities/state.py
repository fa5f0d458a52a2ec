"""RunState: the record that run and model hooks take and return, with the verbs that change it.

Verbs never police: the runtime's check does. A verb that changes nothing returns the identical object.
Knows nothing of phases, effects or how a check is made.
"""

from collections.abc import Callable, Iterable
from operator import is_
from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from .frozen import EMPTY, FrozenDict, Json, freeze_mapping, same
from .messages import NO_USAGE, AssistantMessage, Message, Usage, UserMessage, as_messages, text_field
from .owners import HISTORY, LATCH, OUTPUT, PRIVATE, REQUEST, RESPONSE, RUNTIME, SEALED, owners
from .records import replace
from .run_parts import (
    Fail,
    NamedModel,
    OutputSpec,
    RunStatus,
    Stop,
    check_model,
    context_of,
    history_of,
    model_field,
    settings_of,
    tools_of,
    usages_of,
)
from .shapes import by_key, check_text, none_or, texts_field
from .tools import Tool, Where, accepts, as_where, check_names
from .views import Group, Projection, groups, keep_newest, map_messages, rewritten_task

if TYPE_CHECKING:
    from .capability import Capability

__all__ = ["Fail", "NamedModel", "OutputSpec", "RunState", "RunStatus", "Stop"]

S = TypeVar("S")


@frozen(kw_only=True, repr=False, slots=False)  # copied several times a step: records.py says why
class RunState:
    """One run as its hooks see it. Who may write a field is its owner, in the field's metadata.

    `usage_by_model`: tokens by the name of the model that was asked. `cost`: US dollars so far, None = unknown,
    since some response had no price or no usage.
    """

    run_id: str = field(default="run", metadata=SEALED)
    root_run_id: str = field(default="run", metadata=SEALED)
    parent_run_id: str | None = field(default=None, metadata=SEALED)
    agent: str = field(default="agent", metadata=SEALED)
    inventory: tuple[Tool, ...] = field(default=(), metadata=SEALED, converter=tools_of)
    context: FrozenDict[Json] = field(default=EMPTY, metadata=SEALED, converter=context_of)
    history_start: int = field(default=0, metadata=SEALED)
    output_spec: OutputSpec | None = field(default=None, metadata=SEALED)
    facts: FrozenDict[object] = field(default=FrozenDict(), metadata=SEALED, converter=by_key)

    status: RunStatus = field(default="running", metadata=RUNTIME)
    run_step: int = field(default=0, metadata=RUNTIME)
    max_steps: int = field(default=50, metadata=RUNTIME)
    requests: int = field(default=0, metadata=RUNTIME)
    tool_calls: int = field(default=0, metadata=RUNTIME)
    tool_retries: FrozenDict[object] = field(default=FrozenDict(), metadata=RUNTIME, converter=by_key)
    unselected_retries_used: int = field(default=0, metadata=RUNTIME)
    output_retries_used: int = field(default=0, metadata=RUNTIME)
    output_retries: int = field(default=1, metadata=RUNTIME)
    usage: Usage = field(default=NO_USAGE, metadata=RUNTIME)
    usage_by_model: FrozenDict[Usage] = field(default=FrozenDict(), metadata=RUNTIME, converter=usages_of)
    cost: float | None = field(default=0.0, metadata=RUNTIME)

    stopped: Stop | None = field(default=None, metadata=LATCH, validator=none_or(Stop))
    failed: Fail | None = field(default=None, metadata=LATCH, validator=none_or(Fail))
    again: str | None = field(default=None, metadata=LATCH, validator=none_or(str))
    notes: tuple[str, ...] = field(default=(), metadata=LATCH, validator=texts_field)

    messages: tuple[Message, ...] = field(default=(), metadata=HISTORY, converter=history_of)

    request_messages: Projection | None = field(default=None, metadata=REQUEST, validator=none_or(Projection))
    model: NamedModel | None = field(default=None, metadata=REQUEST, validator=model_field)
    settings: FrozenDict[Json] = field(default=EMPTY, metadata=REQUEST, converter=settings_of)
    instructions: str = field(default="", metadata=REQUEST, validator=text_field)
    tools: tuple[Tool, ...] = field(default=(), metadata=REQUEST, converter=tools_of)

    response: AssistantMessage | None = field(
        default=None, metadata=RESPONSE, validator=none_or(AssistantMessage)
    )
    slots: FrozenDict[object] = field(default=FrozenDict(), metadata=PRIVATE, converter=by_key)
    output: object = field(default=None, metadata=OUTPUT)

    def __repr__(self) -> str:
        """Counts, not contents: a history can be megabytes."""
        return (
            f"<RunState {self.agent} {self.run_id} {self.status} step={self.run_step} "
            f"messages={len(self.messages)} tools={len(self.tools)}/{len(self.inventory)} "
            f"requests={self.requests} tool_calls={self.tool_calls} slots={len(self.slots)}>"
        )

    # --- reading

    @property
    def view(self) -> tuple[Message, ...]:
        """The messages that the next request shows: the projection and what was appended after it."""
        shown = self.request_messages
        if shown is None:
            return self.messages
        tail = self.messages[shown.covers :]
        return shown.messages + tail if tail else shown.messages

    @property
    def exchanges(self) -> tuple[Group, ...]:
        """The view as balanced groups: a message, or an assistant message with all results of its calls."""
        return groups(self.view)

    @property
    def task(self) -> Message | None:
        """The message of the view that holds this run's task; None when a projection dropped it.

        The task is the first user message of this run's own input or, for a run without input, the last one.
        """
        index, shown = self.task_index, self.request_messages
        if index < 0:
            return None
        task = self.messages[index]
        if shown is None or shown.covers <= index:
            return task
        if shown.task is not None:
            return shown.task
        return task if any(message is task for message in shown.messages) else None

    @property
    def task_index(self) -> int:
        """Where the task stands in `messages`; -1 when no user message is there."""
        for i in range(self.history_start, len(self.messages)):
            if isinstance(self.messages[i], UserMessage):
                return i
        for i in range(min(self.history_start, len(self.messages)) - 1, -1, -1):
            if isinstance(self.messages[i], UserMessage):
                return i
        return -1

    def slot(self, capability: "Capability[S]") -> S:
        """Return the capability's own state in this run; `capability.initial()` until it was put."""
        try:
            return self.slots[capability.key]  # type: ignore[return-value]  # only `put` with an S writes it
        except KeyError:
            return capability.initial()

    def slot_of(self, key: str) -> object:
        """Return another capability's state, read-only; None until it was put."""
        return self.slots.get(key)

    def fact(self, capability: "Capability[S]") -> Json:
        """Return what the capability's gatherer of the present hook brought in; None without one."""
        return self.facts.get(capability.key)  # type: ignore[return-value]  # facts are frozen JSON

    # --- this request

    def project(self, messages: Iterable[Message]) -> "RunState":
        """Show exactly `messages` in this request, in place of the present view; the history stays."""
        shown = as_messages(messages, "project")
        view = self.view
        if len(shown) == len(view) and all(map(is_, shown, view)):
            return self
        task = self.task
        if task is not None and not any(message is task for message in shown):
            task = rewritten_task(view, shown, task)
        return replace(self, request_messages=Projection(shown, len(self.messages), task=task))

    def keep_last(self, n: int, *, pin: Callable[[Message], bool] | None = None) -> "RunState":
        """Show leading system messages, the task, and the newest whole exchanges of at most `n` messages.

        The first two are not counted. The newest exchange stays whole, whatever its size; messages that `pin`
        accepts stay too, with their exchange. Raises ValueError for n < 1.
        """
        if type(n) is not int or n < 1:
            raise ValueError(f"keep_last takes an integer of at least 1, not {n!r}")
        view = self.view
        if (
            len(view) <= n and view and type(view[0]) is UserMessage
        ):  # nothing can go, and the task is not looked for
            return self
        kept = keep_newest(view, n, self.task, pin, task_at=self.task_index)
        return self if kept is view else self.project(kept)

    def map_view(self, fn: Callable[[Message], Message]) -> "RunState":
        """Show `fn(message)` for each message of the view.

        Remembered per message and function, which must be pure: pass a method or a module's function, since a
        lambda is another one at each call.
        """
        view = self.view
        shown = map_messages(fn, view)
        return self if shown is view else self.project(shown)

    def select_tools(self, where: Where) -> "RunState":
        """Offer only those of the present selection that `where`, names or a predicate, accepts.

        Raises ValueError for a name that no tool of the inventory has, with the nearest one.
        """
        where = as_where(where)
        if not callable(where):
            there = {tool.name for tool in self.inventory}
            if not there.issuperset(where):
                check_names(where, there)
        kept = [tool for tool in self.tools if accepts(where, tool)]
        return self if len(kept) == len(self.tools) else replace(self, tools=tuple(kept))

    def with_tools(self, *tools: Tool) -> "RunState":
        """Offer tuned versions of selected tools: each replaces the one of its name.

        Sealed in a tuned tool: name, parameters, function, annotations, capabilities. A name that is not
        selected is added, and the check rejects it: a selection is only narrowed or tuned.
        Raises ValueError for two tools of one name.
        """
        tuned = {tool.name: tool for tool in tools_of(tools)}
        if len(tuned) < len(tools):
            raise ValueError(
                f"with_tools takes one tool of a name; given: {', '.join(t.name for t in tools)}"
            )
        kept = tuple(tuned.pop(tool.name, tool) for tool in self.tools) + tuple(tuned.values())
        if len(kept) == len(self.tools) and all(
            new is old for new, old in zip(kept, self.tools, strict=True)
        ):
            return self
        return replace(self, tools=kept)

    def with_model(self, model: NamedModel) -> "RunState":
        """Send this request to another model."""
        check_model(model)
        return self if model is self.model else replace(self, model=model)

    def with_settings(self, /, **settings: object) -> "RunState":
        """Merge model settings over those of this request."""
        merged = freeze_mapping({**self.settings, **settings}, "settings")
        return self if same(merged, self.settings) else replace(self, settings=merged)

    def add_instructions(self, text: str) -> "RunState":
        """Add a paragraph to the instructions of this request."""
        check_text(text, "add_instructions")
        if not text:
            return self
        return replace(self, instructions=f"{self.instructions}\n\n{text}" if self.instructions else text)

    def with_instructions(self, text: str) -> "RunState":
        """Replace the instructions of this request."""
        check_text(text, "with_instructions")
        return self if text == self.instructions else replace(self, instructions=text)

    # --- history and response

    def append(self, *messages: Message) -> "RunState":
        """Append messages to the canonical history."""
        return replace(self, messages=self.messages + as_messages(messages, "append")) if messages else self

    def respond(self, message: AssistantMessage) -> "RunState":
        """Put `message` in place of the model's response."""
        if type(message) is not AssistantMessage:
            raise TypeError(f"respond takes an AssistantMessage, not {type(message).__name__}")
        return self if message is self.response else replace(self, response=message)

    # --- latches: a second one keeps the first and stands in the notes

    def stop(self, message: str) -> "RunState":
        """End the run as a result with this message."""
        if self.stopped is not None:
            return self.note(f"stop: {message}")
        return replace(self, stopped=Stop(message))

    def fail(self, reason: str) -> "RunState":
        """End the run as a failure, BlockedError, with this reason."""
        if self.failed is not None:
            return self.note(f"fail: {reason}")
        return replace(self, failed=Fail(reason))

    def ask_again(self, message: str) -> "RunState":
        """Ask the model again with this message; bounded by output retries; in after_model_request."""
        check_text(message, "ask_again")
        if self.again is not None:
            return self.note(f"ask_again: {message}")
        return replace(self, again=message)

    def note(self, text: str) -> "RunState":
        """Put a note on record."""
        check_text(text, "note")
        return replace(self, notes=(*self.notes, text))

    def put(self, capability: "Capability[S]", value: S) -> "RunState":
        """Set the capability's own state in this run; it must be hashable, and the codec must carry it."""
        if capability.key in self.slots and same(self.slots[capability.key], value):
            return self
        return replace(self, slots=self.slots.assoc(capability.key, value))


owners(RunState)  # a field without an owner fails here
