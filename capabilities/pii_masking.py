"""Masking: texts, JSON and messages with what is personal in them replaced. What is personal, `pii` says.

JSON stays JSON, also where it is written in a text, as tool arguments and most tool results are: its strings are
masked one by one, each read behind its key, so that {"phone": "4155550132"} is a number to call.
Knows nothing of runs and hooks.
"""

import json
from functools import lru_cache

from attrs import frozen

from .frozen import FrozenDict, FrozenList, Json
from .messages import AssistantMessage, Content, Message, SystemMessage, TextPart, ToolCall
from .pii import Span, chosen, detect
from .records import replace

# A placeholder may complete what was none before, with a pattern that looks around itself; each round takes more.
_ROUNDS = 8
_KEY_LENGTH = 40
# A fixed bound, so that what is masked does not depend on the stack. Frozen JSON has at most 200 levels.
LEVELS = 64
_FROZEN_LEVELS = 256
LARGEST_BITS = 256


class Pairs(dict[str, object]):
    """An object of a JSON text; `pairs` has what stands twice in it, too."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        """Take the pairs as they stand in the text."""
        super().__init__(pairs)
        self.pairs = pairs


class TooDeep(Exception):
    """A text holds JSON of more levels than are walked through: it is looked at as plain text."""


@frozen
class Mask:
    """What is taken out of a text, and what stands in its place; see `detect` for the first three.

    Its methods return the very object they got where nothing is personal in it.
    """

    entities: tuple[str, ...]
    patterns: tuple[str, ...]
    region: str
    placeholder: str

    def find(self, text: str) -> tuple[Span, ...]:
        """Return what would be masked."""
        if not self.entities and not self.patterns:
            return ()
        return detect(text, self.entities, patterns=self.patterns, region=self.region)

    def text(self, text: str, key: str = "") -> str:
        """Return the text masked; where it is JSON, it stays so. `key`: what it stands behind in JSON."""
        return self._text(text, key, LEVELS)

    def json(self, value: Json) -> Json:
        """Return the JSON value with its strings, keys and whole numbers masked; a number becomes a string."""
        return self._value(value, "", _FROZEN_LEVELS)  # type: ignore[return-value]  # JSON in, JSON out

    def message(self, message: Message) -> Message:
        """Return the message as a request may show it; a system message, and parts that are no text, as they are."""
        if isinstance(message, SystemMessage):
            return message
        if isinstance(message, AssistantMessage):
            calls = tuple(map(self._call, message.tool_calls))
            spoken = self.response(message)
            same = all(new is old for new, old in zip(calls, message.tool_calls, strict=True))
            return spoken if same else replace(spoken, tool_calls=calls)
        made = self.content(message.content)
        return message if made is message.content else replace(message, content=made)

    def response(self, message: AssistantMessage) -> AssistantMessage:
        """Return what a model said masked: text, the provider's own items, metadata. Its calls stay as they are."""
        content = self.content(message.content)
        items, metadata = self.json(message.provider_items), self.json(message.metadata)
        if content is message.content and items is message.provider_items and metadata is message.metadata:
            return message
        return replace(message, content=content, provider_items=items, metadata=metadata)

    def content(self, content: Content) -> Content:
        """Return the content with its text, or the text of its parts, masked."""
        if isinstance(content, str):
            return self.text(content)
        parts = tuple(self._part(part) if isinstance(part, TextPart) else part for part in content)
        return content if all(new is old for new, old in zip(parts, content, strict=True)) else parts

    def _part(self, part: TextPart) -> TextPart:
        made = self.text(part.text)
        return part if made is part.text else TextPart(made)

    def _call(self, call: ToolCall) -> ToolCall:
        made = self.text(call.arguments)
        return call if made is call.arguments else replace(call, arguments=made)

    def _text(self, text: str, key: str, levels: int) -> str:
        held = parsed(text)
        if held is None:
            return self._plain(text, key)
        try:
            masked = self._value(held, key, min(levels, LEVELS))
        except TooDeep:
            return self._plain(text, key)
        # Escapes are kept where there are some: half a surrogate pair could not be sent without.
        return text if masked is held else json.dumps(masked, ensure_ascii="\\u" in text)

    def _plain(self, text: str, key: str) -> str:
        lead = f"{key}: " if key else ""
        for _ in range(_ROUNDS):
            pieces, done = [], 0
            for span in self.find(lead + text):
                if span.end > len(lead):  # else it is all in the key, which is masked by itself
                    pieces += [text[done : max(0, span.start - len(lead))], self.placeholder]
                    done = span.end - len(lead)
            if not pieces:
                break
            text = "".join([*pieces, text[done:]])
        return text

    def _value(self, value: object, key: str, levels: int) -> object:
        if isinstance(value, str):
            return self._text(value, key, levels)
        if type(value) is int:
            if value.bit_length() > LARGEST_BITS:
                return value
            written = str(value)
            masked = self._plain(written, key)
            return value if masked is written else masked
        if not isinstance(value, list | dict):
            return value
        if levels <= 0:
            raise TooDeep
        if isinstance(value, dict):
            return self._mapping(value, key, levels - 1)
        members, same = [], True
        for member in value:
            made = self._value(member, key, levels - 1)
            members.append(made)
            same = same and made is member
        return value if same else FrozenList(members)  # type: ignore[arg-type]  # members are JSON

    def _mapping(self, value: dict[str, object], outer: str, levels: int) -> object:
        pairs = value.pairs if isinstance(value, Pairs) else list(value.items())
        taken = {key for key, _ in pairs}
        numbers: dict[str, int] = {}
        made: list[tuple[str, object]] = []
        same = True
        for key, member in pairs:
            shown, masked = self._plain(key, ""), self._value(member, key_in(outer, key), levels)
            same = same and shown is key and masked is member
            if shown is not key:
                shown = _apart(shown, taken, numbers)
            made.append((shown, masked))
        return value if same else FrozenDict(made)


def key_in(outer: str, key: str) -> str:
    """Return what a value is read behind: its key, and the one around it, as in {"phone": {"number": ...}}."""
    return f"{outer} {key}"[-_KEY_LENGTH:].lstrip()


def _apart(key: str, taken: set[str], numbers: dict[str, int]) -> str:
    """Return a key that is not taken, with a number where masking made several alike; and take it."""
    name = key
    while name in taken:
        numbers[key] = numbers.get(key, 1) + 1
        name = f"{key} {numbers[key]}"
    taken.add(name)
    return name


def parsed(text: str) -> object:
    """Return what a JSON text holds, objects as `Pairs`; None for a text that is none, or no container or string."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        return json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):  # a text like any other
        return None


@lru_cache(maxsize=256)
def mask_of(
    entities: tuple[str, ...] | None, patterns: tuple[str, ...], region: str, placeholder: str
) -> Mask:
    """Return the one mask of a configuration: messages remember what was made of them by its identity."""
    return Mask(chosen(entities, patterns), patterns, region, placeholder)
