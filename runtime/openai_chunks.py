"""The chunks of a streamed chat completion, put together to the response that would have come in one piece.

Pure, and imports no openai: chunks are decoded JSON. What the assembled response says is read by
`openai_response`, so that both forms of one answer give one message.
"""

import json
from collections.abc import Mapping, Sequence

from ..capabilities.messages import AssistantMessage, TextPart
from .models import ModelError
from .openai_output import OutputForm
from .openai_parts import Unreadable, mapping_at, read_content
from .openai_response import read_response

# Fields of a delta that are told once and perhaps again; other texts come in pieces.
_WHOLE = frozenset({"id", "type", "index", "role", "name", "format"})


class ChatChunks:
    """The assembler of one streamed chat completion.

    Text is told as it comes. An output that is asked for by an output tool, or in a box, is told at the end and
    in one piece: which text is the message's shows only then. So is a refusal.
    """

    def __init__(self, output: OutputForm | None = None) -> None:
        """Start empty. `output`: how the request asked for its output."""
        self._output = output
        self._held = output is not None and (output.as_tool or output.boxed)
        self._chunks = 0
        # Texts in pieces, and other fields; `_order` has the names of both.
        self._texts: dict[str, list[str]] = {}
        self._fields: dict[str, object] = {}
        self._order: dict[str, None] = {}
        self._calls: list[_Call] = []
        self._newest: dict[int, _Call] = {}
        self._finish: object = None
        self._model: object = None
        self._usage: object = None

    @property
    def text(self) -> str:
        """The content so far; the refusal where there is none."""
        return self._joined("content") or self._joined("refusal")

    def _joined(self, name: str) -> str:
        return "".join(self._texts.get(name, ()))

    def feed(self, event: object) -> str:
        """Take one chunk and return its text. Raises ValueError for what is no chunk, and for a second choice."""
        path = f"chunk {self._chunks}"
        self._chunks += 1
        chunk = mapping_at(event, path)
        self._model = self._model or chunk.get("model")
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        if choices is None:
            choices = ()
        if not isinstance(choices, list | tuple):
            raise Unreadable(f"{path}.choices", f"this must be a list, not {type(choices).__name__}")
        told = ""
        for value in choices:  # none, in the chunk with the usage
            choice = mapping_at(value, f"{path}.choices[0]")
            if choice.get("index") or len(choices) > 1:
                raise Unreadable(f"{path}.choices", "one choice was asked for, and here is another")
            self._finish = choice.get("finish_reason") or self._finish
            if choice.get("delta") is not None:
                told = self._take(mapping_at(choice["delta"], f"{path}.delta"), f"{path}.delta")
        return "" if self._held else told

    def _take(self, delta: Mapping[str, object], path: str) -> str:
        told = ""
        for name, value in delta.items():
            if value is None:
                continue
            if name == "tool_calls":
                self._take_calls(value, f"{path}.tool_calls")
                continue
            self._order.setdefault(name)
            if name == "content":
                told = _content(value, f"{path}.content")
                self._texts.setdefault(name, []).append(told)
            elif isinstance(value, str) and name not in _WHOLE and name not in self._fields:
                self._texts.setdefault(name, []).append(value)
            else:
                self._fields[name] = _merged(name, self._fields.get(name), value)
        return told

    def _take_calls(self, value: object, path: str) -> None:
        if not isinstance(value, list | tuple):
            raise Unreadable(path, f"this must be a list, not {type(value).__name__}")
        for i, item in enumerate(value):
            piece = mapping_at(item, f"{path}[{i}]")
            self._call_of(piece, f"{path}[{i}]").take(piece, f"{path}[{i}]")

    def _call_of(self, piece: Mapping[str, object], path: str) -> "_Call":
        """Return the call that a piece belongs to: of its index, unless its id says that another one begins.

        Without an index, it is that of its id; without both, the newest.
        """
        index, call_id = piece.get("index"), piece.get("id")
        if index is None:
            known = [call for call in self._calls if call_id and call.id == call_id]
            if known or (self._calls and not call_id):
                return (known or self._calls)[-1]
            index = max(self._newest, default=-1) + 1
        if type(index) is not int:
            raise Unreadable(f"{path}.index", f"an index is a number, not {index!r:.80}")
        found = self._newest.get(index)
        if found is None or (call_id and found.id and call_id != found.id):
            found = self._newest[index] = _Call(index)
            self._calls.append(found)
        return found

    def finish(self) -> AssistantMessage:
        """Return the message. ModelError "connection" where the stream ended without a finish reason."""
        if self._finish is None:
            came = f"after {self._chunks} chunks" if self._chunks else "with not one chunk: does it stream?"
            raise ModelError(
                "connection", f"the stream ended without a finish reason, {came}", retryable=True
            )
        message = {
            name: self._fields[name] if name in self._fields else self._joined(name) for name in self._order
        }
        if self._calls:
            message["tool_calls"] = [call.body() for call in sorted(self._calls, key=lambda call: call.index)]
        choice = {"message": message, "finish_reason": self._finish}
        return read_response({"model": self._model, "usage": self._usage, "choices": [choice]}, self._output)


class _Call:
    """One tool call under way."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self._fields: dict[str, object] = {}
        # Kind of the call -> field of its body -> pieces.
        self._bodies: dict[str, dict[str, list[str]]] = {}

    def take(self, piece: Mapping[str, object], path: str) -> None:
        for name, value in piece.items():
            if value is None or name == "index":
                continue
            if name in ("function", "custom"):
                self._take_body(name, mapping_at(value, f"{path}.{name}"), f"{path}.{name}")
            elif name == "id":
                self.id = self.id or (value if isinstance(value, str) else "")
            else:
                self._fields[name] = _merged(name, self._fields.get(name), value)

    def _take_body(self, kind: str, body: Mapping[str, object], path: str) -> None:
        pieces = self._bodies.setdefault(kind, {})
        for name, value in body.items():
            if value is None:
                continue
            if isinstance(value, Mapping):  # some compatible servers send the object instead of its text
                value = json.dumps(value, ensure_ascii=False)  # noqa: PLW2901  # the same, as text
            if not isinstance(value, str):
                raise Unreadable(f"{path}.{name}", f"this must be a string, not {type(value).__name__}")
            known = pieces.setdefault(name, [])
            if name not in _WHOLE or "".join(known) != value:  # else told again
                known.append(value)

    def body(self) -> dict[str, object]:
        """Return the call as a whole response has it."""
        bodies = {
            kind: {name: "".join(texts) for name, texts in pieces.items()}
            for kind, pieces in self._bodies.items()
        }
        return {**self._fields, "id": self.id, **bodies}


def _content(value: object, path: str) -> str:
    content = read_content(value, path)
    if isinstance(content, str):
        return content
    texts = [part.text for part in content if isinstance(part, TextPart)]
    if len(texts) < len(content):
        raise Unreadable(path, "an assistant message holds text only")
    return "".join(texts)


def _merged(name: str, old: object, new: object) -> object:
    """Return what two pieces of a field come to: texts and lists go on, objects are filled up, else the newer."""
    if isinstance(old, str) and isinstance(new, str) and name not in _WHOLE:
        return old + new
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{key: _merged(str(key), old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return _went_on(old, new)
    return old if new is None else new


def _went_on(old: Sequence[object], new: Sequence[object]) -> list[object]:
    """Return a list that goes on: an item with the index of an earlier one fills that up."""
    items = list(old)
    for item in new:
        index = item.get("index") if isinstance(item, Mapping) else None
        for i, known in enumerate(items):
            if index is not None and isinstance(known, Mapping) and known.get("index") == index:
                items[i] = _merged("", known, item)
                break
        else:
            items.append(item)
    return items
