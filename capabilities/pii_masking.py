"""Masking: texts, JSON and messages with what is personal in them replaced. What is personal, `pii` says.

JSON stays JSON, also where it is written in a text, as tool arguments and most tool results are: its strings and
whole numbers are masked one by one, each read behind its key, so that {"phone": "4155550132"} is a number to call.
Knows nothing of runs and hooks.
"""

import re
from functools import lru_cache
from operator import is_
from re import Pattern

from attrs import Factory, field, frozen

from .frozen import FrozenDict, FrozenList, Json
from .messages import AssistantMessage, Content, Message, Part, SystemMessage, TextPart, ToolCall
from .pii import Span, chosen, detect, joined, needed
from .pii_parts import ROUNDS, one_text
from .pii_spelling import Pairs, digits_of, parsed, unescaped, written
from .records import replace

_KEY_LENGTH = 40
# A fixed bound, so that what is masked does not depend on the stack. Frozen JSON has at most 200 levels.
LEVELS = 64
_FROZEN_LEVELS = 256


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
    # Of all texts that are looked at, nearly all have nothing of it, and are done with.
    _needed: "Pattern[str] | None" = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(lambda self: needed(self.entities, self.patterns, self.region), takes_self=True),
    )
    # Likewise, before JSON is read in it: there an escape may hide what is needed, and an exponent have it follow.
    _suspect: "Pattern[str] | None" = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(lambda self: _suspect(self._needed), takes_self=True),
    )

    def find(self, text: str) -> tuple[Span, ...]:
        """Return what would be masked."""
        if not self.entities and not self.patterns:
            return ()
        escaped = "\\" in text
        if not escaped and self._needed is not None and self._needed.search(text) is None:
            return ()
        found = self._detected(text)
        if not escaped:
            return found
        plain, places = unescaped(text)
        more = [Span(places[span.start], places[span.end], span.entity) for span in self._detected(plain)]
        return joined([*found, *more])

    def _detected(self, text: str) -> tuple[Span, ...]:
        return detect(text, self.entities, patterns=self.patterns, region=self.region)

    def text(self, text: str, key: str = "") -> str:
        """Return the text masked; where it is JSON, it stays so. `key`: what it stands behind in JSON."""
        return self._text(text, key, LEVELS)

    def json(self, value: Json) -> Json:
        """Return the JSON value with its strings, keys and whole numbers masked; a number becomes a string."""
        if not value and isinstance(value, FrozenDict | FrozenList):  # what most messages have for metadata
            return value
        return self._value(value, "", _FROZEN_LEVELS)  # type: ignore[return-value]  # JSON in, JSON out

    def message(self, message: Message) -> Message:
        """Return the message as a request may show it; a system message, and parts that are no text, as they are."""
        if isinstance(message, SystemMessage):
            return message
        if isinstance(message, AssistantMessage):
            calls = tuple(map(self._call, message.tool_calls))
            spoken = self.response(message)
            same = all(map(is_, calls, message.tool_calls))
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
        # As one text first: a part of an address may be one by itself.
        parts = self._across(content)
        parts = tuple(self._part(part) if isinstance(part, TextPart) else part for part in parts)
        same = len(parts) == len(content) and all(map(is_, parts, content))
        return content if same else parts

    def _across(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return parts with what is personal in their texts masked as they are read, one after the other."""
        places = [i for i, part in enumerate(parts) if isinstance(part, TextPart)]
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        masked = one_text(texts, self.find, self.placeholder) if len(texts) > 1 else texts
        if masked is texts:
            return parts
        made: dict[int, Part] = {
            i: parts[i] if new == old else TextPart(new)
            for i, new, old in zip(places, masked, texts, strict=True)
        }
        # What began in the part before leaves nothing where it was all of the text.
        gone = {i for i, new, old in zip(places, masked, texts, strict=True) if old and not new}
        return tuple(made.get(i, part) for i, part in enumerate(parts) if i not in gone)

    def _part(self, part: TextPart) -> TextPart:
        made = self.text(part.text)
        return part if made is part.text else TextPart(made)

    def _call(self, call: ToolCall) -> ToolCall:
        made, metadata = self.text(call.arguments), self.json(call.metadata)
        same = made is call.arguments and metadata is call.metadata
        return call if same else replace(call, arguments=made, metadata=metadata)

    def _text(self, text: str, key: str, levels: int) -> str:
        if not text or (self._suspect is not None and self._suspect.search(text) is None):
            return text
        held = parsed(text)
        if held is None:
            return self._plain(text, key)
        try:
            masked = self._value(held, key, min(levels, LEVELS))
        except TooDeep:
            return self._plain(text, key)
        # Escapes are kept where there are some: half a surrogate pair could not be sent without.
        return text if masked is held else written(masked, ascii_only="\\u" in text)

    def _plain(self, text: str, key: str) -> str:
        if not text:
            return text
        lead = f"{key}: " if key else ""
        for _ in range(ROUNDS):
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
        digits = digits_of(value)
        if digits is not None:
            masked = self._plain(digits, key)
            return value if masked is digits else masked
        if not isinstance(value, list | dict):
            return value
        if levels <= 0:
            raise TooDeep
        if isinstance(value, dict):
            return self._mapping(value, key, levels - 1)
        given = self._with_texts(value)
        members, same = [], given is value
        for member in given:
            made = self._value(member, key, levels - 1)
            members.append(made)
            same = same and made is member
        return value if same else FrozenList(members)  # type: ignore[arg-type]  # members are JSON

    def _with_texts(self, members: list[object]) -> list[object]:
        """Return members of a list in which texts of parts, as JSON has them, are masked as they are read: as one."""
        parts = {
            i: text
            for i, member in enumerate(members)
            if isinstance(member, dict) and isinstance(text := member.get("text"), str)
        }
        old = list(parts.values())
        new = one_text(old, self.find, self.placeholder) if len(old) > 1 else old
        if new is old:
            return members
        made = list(members)
        for i, text in zip(parts, new, strict=True):
            made[i] = FrozenDict({**members[i], "text": text})  # type: ignore[dict-item]  # a mapping, as seen above
        return made

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


def _suspect(needed: "Pattern[str] | None") -> "Pattern[str] | None":
    return None if needed is None else re.compile(rf"{needed.pattern}|\\|[0-9][eE]")


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


@lru_cache(maxsize=256)
def mask_of(
    entities: tuple[str, ...] | None, patterns: tuple[str, ...], region: str, placeholder: str
) -> Mask:
    """Return the one mask of a configuration: messages remember what was made of them by its identity."""
    return Mask(chosen(entities, patterns), patterns, region, placeholder)
