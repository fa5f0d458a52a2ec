"""CallState: the record that tool hooks take and return: one tool call on its way, with its verbs.

Knows nothing of batches, threads or how arguments are validated.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from .frozen import EMPTY, FrozenDict, Json, digest, freeze_mapping, same
from .messages import Content, ToolCall, content_text
from .owners import ARGUMENTS, LATCH, OUTCOME, SEALED, VERDICT, owners
from .records import replace
from .shapes import by_key, check_text, none_or, of_type, texts_field
from .state import RunState
from .tools import Tool
from .verdict import UNDECIDED, Always, Answered, Ask, Outcome, Problem, Refusal, Verdict

if TYPE_CHECKING:
    from .capability import Capability

S = TypeVar("S")


def _arguments(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "arguments")


def _injected(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "injected")


@cache
def _placeholder() -> Tool:
    # Not at import: checking its schema loads the library that does, which costs 20 ms.
    return Tool("tool", "", {"type": "object"})


@frozen(kw_only=True, repr=False, slots=False)  # copied several times a step: records.py says why
class CallState:
    """One tool call: `asked` by the model, run with `arguments`; `problems` says what is wrong with those.

    `earlier`: the calls of this batch admitted before this one, while it is judged. An unknown tool has a
    placeholder descriptor without function. `retry`: failed steps of this tool in a row so far.
    """

    run: RunState = field(default=RunState(), metadata=SEALED)
    asked: ToolCall = field(default=ToolCall("call-0", "tool"), metadata=SEALED)
    tool: Tool = field(factory=_placeholder, metadata=SEALED)
    index: int = field(default=0, metadata=SEALED)
    retry: int = field(default=0, metadata=SEALED)
    max_retries: int = field(default=3, metadata=SEALED)
    problems: tuple[Problem, ...] = field(default=(), metadata=SEALED)
    earlier: "tuple[CallState, ...]" = field(default=(), metadata=SEALED)
    facts: FrozenDict[object] = field(default=FrozenDict(), metadata=SEALED, converter=by_key)
    arguments: FrozenDict[Json] = field(default=EMPTY, metadata=ARGUMENTS, converter=_arguments)
    injected: FrozenDict[Json] = field(default=EMPTY, metadata=ARGUMENTS, converter=_injected)
    verdict: Verdict = field(default=UNDECIDED, metadata=VERDICT, validator=of_type(Verdict))
    outcome: Outcome | None = field(default=None, metadata=OUTCOME, validator=none_or(Outcome))
    notes: tuple[str, ...] = field(default=(), metadata=LATCH, validator=texts_field)

    def __repr__(self) -> str:
        """Name and place, not contents: arguments and results can be megabytes."""
        became = self.outcome.status if self.outcome is not None else "open"
        return f"<CallState {self.asked.name} {self.asked.id} index={self.index} {became}>"

    @property
    def id(self) -> str:
        """The call's id."""
        return self.asked.id

    @property
    def name(self) -> str:
        """The name of the tool that was asked for."""
        return self.asked.name

    @property
    def will_run(self) -> bool:
        """Whether this call's body will run as things stand, an open approval counted as given.

        Whether the run was stopped is not looked at: that is `run.stopped`.
        """
        verdict = self.verdict
        decided = verdict.refused is not None or verdict.answer is not None
        return not decided and not self.problems and self.outcome is None

    @property
    def ran(self) -> bool:
        """Whether the body was started, however it ended."""
        return self.outcome is not None and self.outcome.attempts > 0

    @property
    def digest(self) -> str:
        """SHA-256 over the tool's descriptor, the arguments and the injected values."""
        return digest([self.tool.digest, self.arguments, self.injected])

    def slot(self, capability: "Capability[S]") -> S:
        """Return the capability's own state in this run; `capability.initial()` until it was put."""
        return self.run.slot(capability)

    def fact(self, capability: "Capability[S]") -> Json:
        """Return what the capability's gatherer of this hook brought in for this call; None without one."""
        return self.facts.get(capability.key)  # type: ignore[return-value]  # facts are frozen JSON

    # --- in before_tool_execute

    def with_arguments(self, arguments: Mapping[str, object]) -> "CallState":
        """Replace the arguments; they are validated again right after this hook."""
        made = freeze_mapping(arguments, "arguments")
        return self if same(made, self.arguments) else replace(self, arguments=made)

    def inject(self, /, **values: object) -> "CallState":
        """Set values for parameters declared with `FromCall`; the model neither sees nor fills them."""
        made = freeze_mapping({**self.injected, **values}, "injected")
        return self if same(made, self.injected) else replace(self, injected=made)

    # --- in admit_tool_execute; refuse and answer in wrap_tool_execute too

    def refuse(self, reason: str) -> "CallState":
        """Refuse the call; the model reads the reason and the run goes on."""
        check_text(reason, "refuse")
        if self.verdict.refused is not None:
            return self.note(f"refuse: {reason}")
        return replace(self, verdict=self.verdict.join(Verdict(refused=Refusal(reason))))

    def answer(self, content: Content) -> "CallState":
        """Answer the call without running it."""
        given = Answered(content)
        if self.verdict.answer is not None:
            return self.note(f"answer: {content_text(given.content)}")
        return replace(self, verdict=self.verdict.join(Verdict(answer=given)))

    def require_approval(
        self,
        prompt: str,
        *,
        denied: str = "The user denied this tool call.",
        timeout: float | None = None,
        always: Always = "off",
    ) -> "CallState":
        """Let a person decide first; several questions about one call are asked as one.

        `denied`: what the model reads after a denial. `timeout` in seconds: then the run is suspended.
        `always`: whether a standing grant covers these arguments or every call of the tool in this run.
        """
        ask = Ask(prompt, denied=denied, timeout=timeout, always=always)
        if ask in self.verdict.approval:
            return self
        return replace(self, verdict=self.verdict.join(Verdict(approval=(ask,))))

    # --- in after_tool_execute

    def with_content(self, content: Content, *, metadata: Mapping[str, object] | None = None) -> "CallState":
        """Change what the model reads of the outcome; `metadata` is merged over the outcome's own.

        Raises ValueError before there is an outcome.
        """
        if self.outcome is None:
            raise ValueError(f"call {self.id!r} has no outcome yet: with_content is for after_tool_execute")
        made = self.outcome.with_content(content, metadata)
        return self if same(made, self.outcome) else replace(self, outcome=made)

    # --- anywhere

    def stop(self, message: str) -> "CallState":
        """End the run as a result with this message; this call and those after it are not executed."""
        return replace(self, run=self.run.stop(message))

    def fail(self, reason: str) -> "CallState":
        """End the run as a failure, BlockedError, with this reason."""
        return replace(self, run=self.run.fail(reason))

    def note(self, text: str) -> "CallState":
        """Put a note about this call on record."""
        check_text(text, "note")
        return replace(self, notes=(*self.notes, text))

    def put(self, capability: "Capability[S]", value: S) -> "CallState":
        """Set the capability's own state in this run."""
        run = self.run.put(capability, value)
        return self if run is self.run else replace(self, run=run)


owners(CallState)  # a field without an owner fails here
