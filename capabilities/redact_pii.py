"""RedactPII: what a model is sent, and what it says, without what is personal. What that is, `pii` says.

Knows nothing of stores and sinks, which may be given the same object.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import Capability, Declaration
from .frozen import Json
from .messages import AssistantMessage, Message, TextPart, text_field
from .pii import as_names
from .pii_masking import Mask, mask_of
from .records import replace
from .shapes import of_type
from .state import RunState

if TYPE_CHECKING:
    from .outside import SaveNext

_OF_HISTORY = frozenset({"before_run", "after_tool_execute", "wrap_save_messages"})
NOT_SCANNED = "images, sounds and files are not scanned for what is personal: they are sent as they are"


def _entities(value: Sequence[str] | None) -> tuple[str, ...] | None:
    return as_names(value, "RedactPII.entities")


def _patterns(value: Sequence[str]) -> tuple[str, ...]:
    return as_names(value, "RedactPII.patterns") or ()


def _placeholder(instance: "RedactPII", attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value:
        raise ValueError("RedactPII.placeholder is empty: nothing would show that something was taken out")


@frozen
class RedactPII(Capability):
    """Masks what is personal in each request's view before it is sent, and in each response after it came.

    `entities`: names of `ENTITIES`, or "stdnum:es.nif" and the like; None stands for email, phone, ssn and
    credit_card, or for none where `patterns` are given; () for none. `patterns`: regular expressions of your
    own. `placeholder` stands in place of what is found. `region`: whose phone numbers, an ISO code of two
    letters. See `detect`.

    Masked are texts, text parts, which are read as one text, tool results, and the strings, keys and whole
    numbers in the arguments of calls, which stay JSON. Not masked: instructions and system messages, which are
    yours; images, sounds and files, which is noted once a run. The history stays as it was said, and tools get
    what the model asked for: where it copied the placeholder, the placeholder. With `history=True` what is kept
    is masked as well: the run's own input before its first step, each tool result as it settles, and all
    messages that a store is given, arguments included. What a suspended run waits with is kept whole, since it
    must go on.

    `hold_stream=True` withholds streamed text until it is masked: a number may be split over two pieces.
    The same object takes what is personal out of logs: `JsonLines(path, redact=RedactPII())`.

    Raises TypeError for a field of another type; ValueError for an unknown entity or region, a pattern that is
    no regular expression, a placeholder that is itself found; ModuleNotFoundError where the extra `pii` is
    needed: for entities of stdnum, and phones outside the US.

    >>> RedactPII(["email"]).redact_text("Write to ada@example.com.")
    'Write to [REDACTED].'
    >>> RedactPII(patterns=[r"EMP-[0-9]{6}"], placeholder="[id]").redact_text('{"who": "EMP-204417"}')
    '{"who": "[id]"}'
    """

    entities: tuple[str, ...] | None = field(default=None, converter=_entities)
    patterns: tuple[str, ...] = field(default=(), converter=_patterns)
    placeholder: str = field(default="[REDACTED]", kw_only=True, validator=_placeholder)
    region: str = field(default="US", kw_only=True, validator=text_field)
    history: bool = field(default=False, kw_only=True, validator=of_type(bool))
    hold_stream: bool = field(default=True, kw_only=True, validator=of_type(bool))

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def __attrs_post_init__(self) -> None:
        """Look each entity and pattern up, so that a wrong one is no surprise of the first run."""
        found = self.mask.find(self.placeholder)
        if found:
            kinds = ", ".join(sorted({span.entity for span in found}))
            legal = next(
                (text for text in ("[REDACTED]", "[...]", "***") if not self.mask.find(text)), "another"
            )
            raise ValueError(
                f"RedactPII.placeholder {self.placeholder!r} would itself be found, as {kinds}: "
                f"write one that is not, such as {legal!r}"
            )

    @property
    def mask(self) -> Mask:
        """What does the masking; one object for equal configurations."""
        return mask_of(self.entities, self.patterns, self.region, self.placeholder)

    def idle_hooks(self) -> frozenset[str]:
        """Without `history` what is kept is left alone."""
        return frozenset() if self.history else _OF_HISTORY

    def redact_text(self, text: str) -> str:
        """Return a text masked; where it is JSON, it stays so. The same text where there is nothing to mask."""
        return self.mask.text(text)

    def redact_json(self, value: Json) -> Json:
        """Return frozen JSON with its strings, keys and whole numbers masked; a masked number is a string."""
        return self.mask.json(value)

    def before_run(self, state: RunState) -> RunState:
        """With `history`: mask this run's own input."""
        if not self.history:
            return state
        start, message_of = state.history_start, self.mask.message
        masked = tuple(map(message_of, state.messages[start:]))
        if all(new is old for new, old in zip(masked, state.messages[start:], strict=True)):
            return state
        return replace(state, messages=state.messages[:start] + masked)

    def before_model_request(self, state: RunState) -> RunState:
        """Mask the view; say once that media parts are not looked into."""
        masked = state.map_view(self.mask.message)
        if NOT_SCANNED not in state.notes and any(map(_has_media, _news(masked))):
            masked = masked.note(NOT_SCANNED)
        return masked

    def after_model_request(self, state: RunState) -> RunState:
        """Mask what the model said; a call that it made keeps its arguments, as every call does."""
        if state.response is None:
            return state
        return state.respond(self.mask.response(state.response))

    def after_tool_execute(self, call: CallState) -> CallState:
        """With `history`: mask the result."""
        if not self.history or call.outcome is None:
            return call
        content = self.mask.content(call.outcome.content)
        return call if content is call.outcome.content else call.with_content(content)

    async def wrap_save_messages(
        self, call_next: "SaveNext", state: RunState, messages: Sequence[Message]
    ) -> None:
        """With `history`: mask what the store is given."""
        await call_next(state, tuple(map(self.mask.message, messages)) if self.history else messages)


def _news(state: RunState) -> tuple[Message, ...]:
    """Return what this request may show and none of this run did before: all at the first, then what came last."""
    view = state.view
    start = len(view) if state.run_step > 1 else 0
    while start > 0 and not isinstance(view[start - 1], AssistantMessage):
        start -= 1
    return view[max(0, start - 1) :]


def _has_media(message: Message) -> bool:
    content = message.content
    return type(content) is tuple and any(not isinstance(part, TextPart) for part in content)
