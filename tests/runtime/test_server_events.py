"""Server-sent events: the data of each event, however its bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.runtime.server_events import EventDecoder


def decoded(*pieces: bytes) -> list[bytes]:
    """Return the data of all events in a response."""
    decoder = EventDecoder()
    return [data for piece in pieces for data in decoder.feed(piece)]


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"data: a\n\ndata:b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\nevent: x\nid: 1\ndata: a\nretry: 3\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"event: x\n\n\n\ndata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: cut", [b"a"]),
        (b"data: a\n\ndata: cut\n", [b"a"]),
        ("data: \u2028\x0b\x85\n\n".encode(), ["\u2028\x0b\x85".encode()]),
        (b"data\n\ndata: \n\ndata: a\n\n", [b"a"]),
        (b"", []),
    ],
)
@given(data=st.data())
def test_events(received: bytes, expected: list[bytes], data: st.DataObject) -> None:
    """Line ends of three kinds, comments and other fields: the data stays, the same for every cut."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(received)), max_size=5)))
    pieces = [received[i:j] for i, j in zip([0, *cuts], [*cuts, len(received)], strict=True)]
    assert expected == decoded(*pieces)
