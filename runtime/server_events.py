"""Server-sent events, from the bytes of a response to the data of each event. Pure.

By https://html.spec.whatwg.org/multipage/server-sent-events.html, but for what nobody asks for here: names of
events, ids, and when to connect again. An event that is not ended by an empty line was cut off and is none.
"""

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventDecoder:
    """Decodes one response, however its bytes are cut."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._after_return = False
        self._first = True

    def feed(self, received: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events that they complete."""
        if self._after_return and received:
            received = received.removeprefix(b"\n")  # the second half of a line end
            self._after_return = False
        *lines, rest = _LINE_END.split(received)
        if lines:
            self._after_return = received.endswith(b"\r")
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest.clear()
        self._rest.append(rest)
        events: list[bytes] = []
        for line in lines:
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._first = False
        if not line:
            if data := b"\n".join(self._data):  # without any, it only kept the connection open
                events.append(data)
            self._data = []
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
