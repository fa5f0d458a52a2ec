"""The events of a streamed response of the responses API, up to the one that holds the response as a whole.

Pure, and imports no openai: events are decoded JSON. What the whole response says is read by
`openai_responses_response`, so that both forms of one answer give one message.
"""

from collections.abc import Mapping

from ..capabilities.messages import AssistantMessage
from .models import ModelError
from .openai_output import OutputForm
from .openai_parts import Unreadable, mapping_at, text_at
from .openai_responses_response import is_commentary, read_response, response_failure

# The events that end a stream. Their names tell less than the status of the response that they hold.
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseEvents:
    """The assembler of one streamed response.

    Text is told as it comes. An output that is asked for by an output tool, or in a box, is told at the end and
    in one piece: which text is the message's shows only then. So is a refusal, and a structured output from where
    a commentary begins, which is none of it.
    """

    def __init__(self, output: OutputForm | None = None) -> None:
        """Start empty. `output`: how the request asked for its output."""
        self._output = output
        self._held = output is not None and (output.as_tool or output.boxed)
        self._count = 0
        self._texts: list[str] = []
        self._told: list[str] = []
        self._refusals: list[str] = []
        # The place of the newest text: output item, and part of it.
        self._place = (0, 0)
        self._items: dict[int, object] = {}
        self._response: Mapping[str, object] | None = None

    @property
    def text(self) -> str:
        """The text so far; the refusal where there is none."""
        return "".join(self._texts or self._refusals)

    def feed(self, event: object) -> str:
        """Take one event and return its text.

        Raises ValueError for what is no event of this API, ModelError for one that says that the response failed.
        """
        path = f"event {self._count}"
        self._count += 1
        value = mapping_at(event, path)
        match text_at(value, "type", path):
            case "response.output_text.delta":
                return self._take_text(value, path)
            case "response.refusal.delta":
                self._refusals.append(text_at(value, "delta", path))
            case "response.output_item.added":
                self._held = self._held or (self._output is not None and is_commentary(value.get("item")))
            case "response.output_item.done":
                self._items[_index(value, "output_index", path)] = value.get("item")
            case "error":
                raise response_failure(value)
            case kind if kind in _LAST:
                self._response = mapping_at(value.get("response"), f"{path}.response")
                if kind == "response.failed":
                    raise response_failure(self._response.get("error"))
        return ""

    def _take_text(self, event: Mapping[str, object], path: str) -> str:
        text = text_at(event, "delta", path)
        place = (_index(event, "output_index", path), _index(event, "content_index", path))
        if place < self._place:
            raise Unreadable(path, "here goes on a text before one that has begun")
        self._place = place
        self._texts.append(text)
        if self._held:
            return ""
        self._told.append(text)
        return text

    def finish(self) -> AssistantMessage:
        """Return the message. ModelError "connection" where the stream ended before the response did."""
        if self._response is None:
            came = f"after {self._count} events" if self._count else "with not one event: does it stream?"
            raise ModelError(
                "connection", f"the stream ended without the whole response, {came}", retryable=True
            )
        response = self._response
        if not response.get("output") and self._items:  # some servers leave out what was told before
            response = {**response, "output": [self._items[i] for i in sorted(self._items)]}
        message = read_response(response, self._output)
        if not message.text.startswith("".join(self._told)):
            raise Unreadable("response.output", "the text of the whole response is not the one that was told")
        return message


def _index(event: Mapping[str, object], name: str, path: str) -> int:
    index = event.get(name, 0)
    if type(index) is not int:
        raise Unreadable(f"{path}.{name}", f"an index is a number, not {index!r:.80}")
    return index
