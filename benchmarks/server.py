"""A loopback server for W7: `python -m benchmarks.server [CORE]` prints its port and answers until killed.

It answers each request with the same chat completion over a kept connection, and does next to nothing else,
so that what is measured is the client. Must not know who asks.
"""

import asyncio
import json
import os
import sys

from .contract import FINAL

BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": FINAL, "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default",
    }
).encode()
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


def request_size(head: bytes) -> int:
    """Return the size in bytes of a request whose head, without the blank line, is `head`."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line.partition(b":")[2])
    return len(head) + 4


class Canned(asyncio.Protocol):
    """One connection: waits for a whole request, writes `RESPONSE`, and so on."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete by now."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            size = request_size(bytes(self._buffer[:end]))
            if len(self._buffer) < size or self._transport is None:
                return
            del self._buffer[:size]
            self._transport.write(RESPONSE)


async def serve() -> None:
    """Listen on a free port of the loopback interface and print it."""
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(serve())
